"""The prices of the configurations, counted anew: `python -m tools.prices`."""

import csv
import sys

import jax

from jaxrl.config import toml
from jaxrl.experiments.price import table
from jaxrl.experiments.price.count import count

if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(table.COLUMNS)
    for path in sorted(toml.FOLDERS[1].glob("*/*.toml")):
        writer.writerow(table.row(path, count(toml.load(path))))
