"""Loads birds.csv into Skein and queries it, with the ADBC driver.

pip install adbc-driver-flightsql pyarrow
python python_adbc.py grpc://127.0.0.1:8815
"""

import pathlib
import sys

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa
import pyarrow.csv

uri = sys.argv[1] if len(sys.argv) > 1 else "grpc://127.0.0.1:8815"
birds = pyarrow.csv.read_csv(
    pathlib.Path(__file__).with_name("birds.csv"),
    convert_options=pyarrow.csv.ConvertOptions(column_types={"mass_kg": pa.decimal128(6, 2)}),
)

with flightsql.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
    cursor.execute("DROP TABLE IF EXISTS birds_python_adbc")
    cursor.execute(
        "CREATE TABLE birds_python_adbc (id BIGINT PRIMARY KEY, name TEXT, species TEXT, ringed DATE, mass_kg DECIMAL(6,2))"
    )
    rows = cursor.adbc_ingest("birds_python_adbc", birds, mode="append")
    print(f"{rows} rows loaded", file=sys.stderr)
    cursor.execute(
        "SELECT species, count(*), max(mass_kg) FROM birds_python_adbc WHERE id > ? GROUP BY species ORDER BY species",
        (0,),
    )
    for species, count, heaviest in cursor.fetchall():
        print(species, count, heaviest)
