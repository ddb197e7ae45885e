"""Loads birds.csv into Skein and queries it, with nothing but pyarrow.

The text of a statement is the command of a Flight descriptor, the name of a
table its path.

pip install pyarrow
python python_flight.py grpc://127.0.0.1:8815
"""

import pathlib
import sys

import pyarrow as pa
import pyarrow.csv
import pyarrow.flight as flight

uri = sys.argv[1] if len(sys.argv) > 1 else "grpc://127.0.0.1:8815"
birds = pyarrow.csv.read_csv(
    pathlib.Path(__file__).with_name("birds.csv"),
    convert_options=pyarrow.csv.ConvertOptions(column_types={"mass_kg": pa.decimal128(6, 2)}),
)


def run(client, sql):
    """Runs one statement and returns its rows as a table."""
    info = client.get_flight_info(flight.FlightDescriptor.for_command(sql.encode()))
    return pa.concat_tables(client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints)


with flight.connect(uri) as client:
    run(client, "DROP TABLE IF EXISTS birds_python_flight")
    run(
        client,
        "CREATE TABLE birds_python_flight"
        " (id BIGINT PRIMARY KEY, name TEXT, species TEXT, ringed DATE, mass_kg DECIMAL(6,2))",
    )
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("birds_python_flight"), birds.schema)
    with writer:
        writer.write_table(birds)
    result = run(
        client,
        "SELECT species, count(*) AS birds, max(mass_kg) AS heaviest"
        " FROM birds_python_flight GROUP BY species ORDER BY species",
    )
    for row in result.to_pylist():
        print(row["species"], row["birds"], row["heaviest"])
