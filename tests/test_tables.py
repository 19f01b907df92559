from bosch.common.tables import html_table, mean_and_spread, text_table


def test_columns_are_aligned_and_the_result_is_markdown():
    assert text_table(["method", "NLL"], [["a", "0.5"], ["longer one", "12.25"]]) == [
        "| method     |   NLL |",
        "| ---------- | ----: |",
        "| a          |   0.5 |",
        "| longer one | 12.25 |",
    ]


def test_a_spread_is_that_of_the_sample():
    """Of 1, 2, 3: the squared distances sum to 2, over n - 1 = 2; one value alone has no spread."""
    assert mean_and_spread([1, 2, 3], 2) == "2.00 ± 1.00"
    assert mean_and_spread([0.5], 1) == "0.5"


def test_html_holds_the_cells_and_nothing_of_a_name_is_markup():
    lines = text_table(["method", "NLL"], [["a <b>", "0.5"], ["c & d", "12"]])
    assert html_table("t <i>", lines) == (
        "<p>t &lt;i&gt;</p><table><tr><th>method</th><th>NLL</th></tr>"
        "<tr><td>a &lt;b&gt;</td><td>0.5</td></tr><tr><td>c &amp; d</td><td>12</td></tr></table>"
    )


def test_cells_at_the_ends_of_a_line_may_be_empty():
    shown = html_table("t", text_table(["", "b", ""], [["1", "2", ""], ["", "", "3"]]))
    assert "<th></th><th>b</th><th></th>" in shown
    assert "<td>1</td><td>2</td><td></td>" in shown
    assert "<td></td><td></td><td>3</td>" in shown
