"""The catalogues of hardware and models."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

hardware = App(name="hardware", help="Nodes and GPUs in the catalogue.")
model = App(name="model", help="Models in the catalogue.")


@hardware.command(name="list")
def hardware_list() -> None:
    """Nodes and GPUs in the catalogue."""
    from sim.report import catalogue

    catalogue.list_hardware()


@hardware.command(name="show")
def hardware_show(name: str, /) -> None:
    """One node or GPU, with the source of each figure."""
    from sim.report import catalogue

    catalogue.show_hardware(name)


@model.command(name="list")
def model_list() -> None:
    """Models in the catalogue."""
    from sim.report import catalogue

    catalogue.list_models()


@model.command(name="show")
def model_show(name: str, /) -> None:
    """One model's geometry, with its source."""
    from sim.report import catalogue

    catalogue.show_model(name)


@model.command(name="import")
def model_import(file: Path, /) -> None:
    """Print the profile of a model from its Hugging Face config.json."""
    from sim.report import catalogue

    catalogue.import_model(file)
