from bosch.common.tables import text_table


def test_columns_are_aligned_and_the_result_is_markdown():
    assert text_table(["method", "NLL"], [["a", "0.5"], ["longer one", "12.25"]]) == [
        "| method     |   NLL |",
        "| ---------- | ----: |",
        "| a          |   0.5 |",
        "| longer one | 12.25 |",
    ]
