"""Logs in to a Skein that wants TLS and a password, with ADBC and with pyarrow.

pip install adbc-driver-flightsql pyarrow
SKEIN_PASSWORD=... python python_secured.py grpc+tls://127.0.0.1:8815 ca.pem ann
"""

import os
import pathlib
import sys

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow.flight as flight

uri, ca, user = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(), sys.argv[3]
password = os.environ["SKEIN_PASSWORD"]

# ADBC logs in when it connects, and takes up the new token when the gateway renews it.
options = {"username": user, "password": password, "adbc.flight.sql.client_option.tls_root_certs": ca}
with flightsql.connect(uri, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT CURRENT_USER")
    print("ADBC is", cursor.fetchone()[0])

# pyarrow asks for a token, which goes along with each call.
with flight.connect(uri, tls_root_certs=ca) as client:
    call = flight.FlightCallOptions(headers=[client.authenticate_basic_token(user, password)])
    info = client.get_flight_info(flight.FlightDescriptor.for_command(b"SELECT CURRENT_USER"), call)
    print("pyarrow is", client.do_get(info.endpoints[0].ticket, call).read_all()[0][0])
    try:
        client.get_flight_info(flight.FlightDescriptor.for_command(b"SELECT 1"))
    except flight.FlightUnauthenticatedError:
        print("nobody is let in")
