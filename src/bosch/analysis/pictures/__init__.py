"""Pictures of the analyses, each as PNG and as SVG."""

from bosch.analysis.pictures.curves import draw_curves
from bosch.analysis.pictures.locality import draw_locality
from bosch.analysis.pictures.localized import draw_layers, draw_units
from bosch.analysis.pictures.overlap import Panel, draw_overlap

__all__ = ["Panel", "draw_curves", "draw_layers", "draw_locality", "draw_overlap", "draw_units"]
