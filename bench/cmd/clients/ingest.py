"""Ingests rows with ADBC and prints the seconds that took.

python ingest.py URI TABLE ROWS
"""

import sys
import time

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa
import pyarrow.compute as pc

uri, table, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
numbers = pa.array(range(rows), pa.int64())
names = pc.binary_join_element_wise(pa.scalar("name of "), pc.cast(numbers, pa.string()), "")
data = pa.table({"id": numbers, "grp": pc.cast(numbers, pa.int32()), "name": names})
with flightsql.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
    began = time.monotonic()
    stored = cursor.adbc_ingest(table, data.to_reader(max_chunksize=65536), mode="append")
    took = time.monotonic() - began
if stored != rows:
    sys.exit(f"{stored} of {rows} rows are stored")
print(took)
