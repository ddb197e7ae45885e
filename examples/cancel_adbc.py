"""Cancels a running query with the ADBC driver and waits until the server is idle.

python cancel_adbc.py grpc://127.0.0.1:8815
"""

import json
import sys
import threading
import time

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow.flight

uri = sys.argv[1] if len(sys.argv) > 1 else "grpc://127.0.0.1:8815"
SLOW = "SELECT count(*) FROM cancel_adbc AS x JOIN cancel_adbc AS y ON x.v || 'z' < y.v"
PATIENCE = 30  # seconds


def status(client):
    """What runs on the server: statements, and fragments of its workers."""
    (result,) = client.do_action(pyarrow.flight.Action("skein.cluster_status", b""))
    found = json.loads(result.body.to_pybytes())
    running = [q for q in found["queries"] if q["text"] == SLOW]
    return len(running), sum(w["fragments"] for w in found["workers"])


def await_status(client, what, condition):
    """Asks until a condition holds and returns how long that took."""
    began = time.monotonic()
    while not condition(*status(client)):
        if time.monotonic() - began > PATIENCE:
            sys.exit(f"{what}: never happened, the server has {status(client)}")
        time.sleep(0.02)
    return time.monotonic() - began


with (
    flightsql.connect(uri, autocommit=True) as connection,
    connection.cursor() as cursor,
    pyarrow.flight.connect(uri) as watch,
):
    cursor.execute("DROP TABLE IF EXISTS cancel_adbc")
    cursor.execute("CREATE TABLE cancel_adbc (id BIGINT PRIMARY KEY, v TEXT)")
    cursor.execute(
        "INSERT INTO cancel_adbc SELECT n, 'value ' || n FROM generate_series(1, 200000) AS s(n)"
    )
    failure = []

    def run():
        try:
            cursor.execute(SLOW)
            cursor.fetchall()
        except connection.Error as error:
            failure.append(error)

    query = threading.Thread(target=run, daemon=True)
    query.start()
    await_status(watch, "the query runs", lambda queries, fragments: queries == 1 and fragments > 0)
    cursor.adbc_cancel()
    query.join(PATIENCE)
    if query.is_alive() or not failure:
        sys.exit(f"the cancelled query ended with {failure or 'nothing'}")
    print(f"cancelled: {failure[0]}", file=sys.stderr)
    took = await_status(watch, "the server is idle", lambda queries, _: queries == 0)
    print(f"idle after {took:.3f} s", file=sys.stderr)
    cursor.execute("SELECT count(*) FROM cancel_adbc")
    print("cancelled, then", cursor.fetchone()[0], "rows")
    cursor.execute("DROP TABLE cancel_adbc")
