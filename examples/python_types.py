"""Sends the edge values of every Arrow type to Skein with ADBC and reads them back.

    python examples/python_types.py grpc://127.0.0.1:8815
"""

import datetime
import decimal
import sys

import adbc_driver_flightsql.dbapi as flight_sql
import adbc_driver_manager
import pyarrow as pa

INT = {8: 127, 16: 32767, 32: 2**31 - 1, 64: 2**63 - 1}
texts = ["", "Ünïcödé 🪿", "a text of more than twelve bytes", None]
times = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59), None]
utc = datetime.timezone.utc

# What is sent, and the type that it comes back in, which holds every value of it.
SENT = {
    "bool": (pa.array([True, False, None]), pa.bool_()),
    "int8": (pa.array([-128, 127, None], pa.int8()), pa.int16()),
    "int16": (pa.array([-32768, 32767, None], pa.int16()), pa.int16()),
    "int32": (pa.array([-(2**31), 2**31 - 1, None], pa.int32()), pa.int32()),
    "int64": (pa.array([-(2**63), 2**63 - 1, None], pa.int64()), pa.int64()),
    "uint8": (pa.array([0, 255, None], pa.uint8()), pa.int16()),
    "uint16": (pa.array([0, 65535, None], pa.uint16()), pa.int32()),
    "uint32": (pa.array([0, 2**32 - 1, None], pa.uint32()), pa.int64()),
    "uint64": (pa.array([0, 2**64 - 1, None], pa.uint64()), pa.decimal128(20, 0)),
    "float16": (pa.array([65504, -65504, None]).cast(pa.float32()).cast(pa.float16()), pa.float32()),
    "float32": (pa.array([3.4028234663852886e38, 1e-45, None], pa.float32()), pa.float32()),
    "float64": (pa.array([1.7976931348623157e308, 5e-324, None], pa.float64()), pa.float64()),
    "decimal": (pa.array([decimal.Decimal("9" * 34 + ".9999"), None], pa.decimal128(38, 4)), pa.decimal128(38, 4)),
    "decimal256": (pa.array([decimal.Decimal("9" * 34 + ".9999"), None], pa.decimal256(60, 4)), pa.decimal128(38, 4)),
    "string": (pa.array(texts), pa.string()),
    "large_string": (pa.array(texts, pa.large_string()), pa.string()),
    "string_view": (pa.array(texts, pa.string_view()), pa.string()),
    "dictionary": (pa.array(texts).dictionary_encode(), pa.string()),
    "run_end": (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None])), pa.string()),
    "null": (pa.nulls(3), pa.string()),
    "binary": (pa.array([b"", b"\x00\xff", None]), pa.binary()),
    "large_binary": (pa.array([b"", b"\x00\xff", None], pa.large_binary()), pa.binary()),
    "binary_view": (pa.array([b"", b"\x00\xff" * 20, None], pa.binary_view()), pa.binary()),
    "fixed_binary": (pa.array([b"abc", None], pa.binary(3)), pa.binary()),
    "date32": (pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None], pa.date32()), pa.date32()),
    "date64": (pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None], pa.date64()), pa.date32()),
    "time32": (pa.array([datetime.time(0), datetime.time(23, 59, 59), None], pa.time32("s")), pa.time64("us")),
    "time64": (pa.array([datetime.time(0), datetime.time(23, 59, 59, 999999), None], pa.time64("us")), pa.time64("us")),
    "timestamp_s": (pa.array(times, pa.timestamp("s")), pa.timestamp("s")),
    "timestamp_us": (pa.array(times, pa.timestamp("us")), pa.timestamp("us")),
    "timestamp_ns": (pa.array([-(2**63) + 1, 2**63 - 1, None], pa.int64()).cast(pa.timestamp("ns")), pa.timestamp("ns")),
    "timestamp_tz": (
        pa.array([datetime.datetime(2024, 2, 29, 12, tzinfo=utc), None], pa.timestamp("us", "Europe/Berlin")),
        pa.timestamp("us", "UTC"),
    ),
    "interval": (pa.array([pa.MonthDayNano([1, -2, 3000]), None]), pa.month_day_nano_interval()),
    "uuid": (pa.array([b"\x00" * 16, b"\xff" * 16, None], pa.binary(16)), pa.binary(16)),
}
# What there is no SQL type for is refused, and named.
REFUSED = {
    "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
    "union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
}


def main(uri):
    wrong = []
    with flight_sql.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        for name, (sent, want) in SENT.items():
            table = "python_" + name
            rows = pa.table({"place": pa.array(range(len(sent)), pa.int64()), "v": sent})
            cursor.adbc_ingest(table, rows, mode="replace")
            cursor.execute(f"SELECT v FROM {table} ORDER BY place")
            got = cursor.fetch_arrow_table().column("v").combine_chunks()
            # The values as Python has them are the same, whatever the types.
            equal = [plain(v) for v in got.to_pylist()] == [plain(v) for v in sent.to_pylist()]
            if name in ("timestamp_ns", "interval"):
                equal = got.equals(sent)
            if got.type != want or not equal:
                wrong.append(f"{name}: sent {sent}, got {got}")
        for name, sent in REFUSED.items():
            try:
                cursor.adbc_ingest("python_" + name, pa.table({"column_of_" + name: sent}), mode="replace")
                wrong.append(f"{name} was not refused")
            except adbc_driver_manager.Error as e:
                if "column_of_" + name not in str(e) or "0A000" not in str(e):
                    wrong.append(f"{name}: {e}")
    for line in wrong:
        print(line)
    if wrong:
        sys.exit(1)
    print(f"{len(SENT)} types came back as they were sent, {len(REFUSED)} were refused")


def plain(value):
    """A value without what only its type says: its zone, or that it is a decimal."""
    if isinstance(value, datetime.datetime) and value.tzinfo:
        return value.astimezone(utc)
    if isinstance(value, decimal.Decimal):
        return int(value) if value == int(value) else value
    return value


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "grpc://127.0.0.1:8815")
