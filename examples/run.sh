#!/usr/bin/env bash
# Runs every example, and the programs in docs/clients, against a fresh server and
# compares what they print. Needs Go, python3 with venv, a JDK, Maven, openssl and Node;
# packages go to examples/.cache.
set -euo pipefail
cd "$(dirname "$0")/.."
skein=${SKEIN:-./bin/skein}
cache=examples/.cache
work=$(mktemp -d)
server=

stop() {
  if [ -n "$server" ]; then
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  server=
}

finish() {
  stop
  rm -rf "$work"
}
trap finish EXIT

if ! cmp -s examples/requirements.txt "$cache/venv/requirements.txt"; then
  python3 -m venv "$cache/venv"
  "$cache/venv/bin/pip" install --quiet -r examples/requirements.txt
  cp examples/requirements.txt "$cache/venv/requirements.txt"
fi
if [ ! -d "$cache/node/node_modules" ]; then
  mkdir -p "$cache/node"
  cp examples/package.json "$cache/node/"
  npm install --silent --no-fund --no-audit --prefix "$cache/node"
fi

serve() { # DATA FLAG...
  : >"$work/out"
  "$skein" dev --flight 127.0.0.1:0 --http "" --data "$@" >"$work/out" &
  server=$!
  address=
  while [ -z "$address" ]; do
    kill -0 "$server"
    address=$(sed -n 's,^  Flight SQL  grpc[a-z+]*://,,p' "$work/out")
    # Wait for the next line of output, for a second at most.
    [ -n "$address" ] || timeout 1 tail -n +1 -f --pid="$server" "$work/out" | grep -q -m1 'Flight SQL' || true
  done
}
serve :memory:

passed=0 failed=0
check() { # NAME EXPECTED COMMAND...
  local name=$1 expected=$2
  shift 2
  if "$@" >"$work/actual" 2>"$work/log" && diff -u "$expected" "$work/actual"; then
    echo "ok      $name"
    passed=$((passed + 1))
  else
    echo "FAILED  $name"
    sed 's/^/        /' "$work/log" | tail -n 30
    failed=$((failed + 1))
  fi
}

shell_example() {
  "$skein" load examples/birds.csv --addr "$address" --table birds_shell --create --quiet >/dev/null
  "$skein" sql --addr "$address" --format csv -c \
    "SELECT species, count(*), max(mass_kg) FROM birds_shell GROUP BY species ORDER BY species" | tail -n +2 | tr , ' '
}

page() { # PAGE LANGUAGE: takes the programs out of a page of the manual
  rm -rf "$cache/$1"
  "$cache/venv/bin/python" examples/snippets.py "docs/clients/$1.md" "$2" "$cache/$1" "$address"
}

each() { # COMMAND FILE...: runs a command with each file
  local command=$1
  shift
  for file in "$@"; do
    $command "$file"
  done
}

node_page() { # the packages are found from where the program is
  cp "$cache"/node-page/* "$cache/node/"
  each node "$cache"/node/snippet-*.mjs
}

java_page() {
  mvn --batch-mode --no-transfer-progress --quiet --file examples/java_jdbc/pom.xml compile exec:exec -Dskein.main=Snippet \
    "-Dskein.sources=$PWD/$cache/java" -Dskein.url= -Dskein.csv= "-Dproject.build.directory=$PWD/$cache/java/target" |
    sed -e 's/\x1b\[[0-9;]*m//g' -e '/^$/d'
}

java_example() { # CLASS PARAMETERS
  # Maven may reset the terminal's colours around what the program prints.
  mvn --batch-mode --no-transfer-progress --quiet --file examples/java_jdbc/pom.xml compile exec:exec "-Dskein.main=skein.$1" \
    "-Dskein.url=jdbc:arrow-flight-sql://$address?${2:-useEncryption=false}" "-Dskein.csv=$PWD/examples/birds.csv" |
    sed -e 's/\x1b\[[0-9;]*m//g' -e '/^$/d'
}

birds=examples/expected.txt
echo "cancelled, then 200000 rows" >"$work/cancel_python"
echo "cancelled, then 50000 rows" >"$work/cancel_java"
echo "34 types came back as they were sent, 2 were refused" >"$work/types_python"
echo "JDBC sees the values and what they are" >"$work/types_java"
check "shell" "$birds" shell_example
check "Python, ADBC" "$birds" "$cache/venv/bin/python" examples/python_adbc.py "grpc://$address"
check "Python, ADBC, cancel" "$work/cancel_python" "$cache/venv/bin/python" examples/cancel_adbc.py "grpc://$address"
check "Python, pyarrow.flight" "$birds" "$cache/venv/bin/python" examples/python_flight.py "grpc://$address"
check "Go, ADBC" "$birds" go run ./examples/go_adbc "grpc://$address" examples/birds.csv
check "Java, JDBC" "$birds" java_example Birds
check "Java, JDBC, cancel" "$work/cancel_java" java_example Cancel
check "Python, ADBC, every type" "$work/types_python" "$cache/venv/bin/python" examples/python_types.py "grpc://$address"
check "Java, JDBC, types and metadata" "$work/types_java" java_example Types
echo "what graphical clients ask for is answered" >"$work/metadata_java"
check "Java, JDBC, metadata of graphical clients" "$work/metadata_java" java_example Metadata
echo "parameters of every type arrive, 100 of them in a batch" >"$work/setters_java"
check "Java, JDBC, setters" "$work/setters_java" java_example Setters
page python python
check "docs/clients/python.md" "$cache/python/expected.txt" "$cache/venv/bin/python" -W ignore "$cache/python/snippet.py"
page go go
check "docs/clients/go.md" "$cache/go/expected.txt" each "go run" "$cache"/go/snippet-*/main.go
page java java
check "docs/clients/java.md" "$cache/java/expected.txt" java_page
rm -rf "$cache/node-page"
"$cache/venv/bin/python" examples/snippets.py docs/clients/node.md js "$cache/node-page" "$address"
check "docs/clients/node.md" "$cache/node-page/expected.txt" node_page

# The same with TLS and a password: the user is made while nobody is asked who it is.
stop
export SKEIN_PASSWORD="colon:and-more"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
serve "$work/data"
SKEIN_NEW_PASSWORD=$SKEIN_PASSWORD "$skein" admin user add ann --superuser --addr "$address"
stop
serve "$work/data" --auth users --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
secured_shell() {
  "$skein" sql --addr "grpc+tls://$address" --tls-ca "$work/cert.pem" --user ann --format csv -c "SELECT CURRENT_USER" | tail -n 1
}
echo ann >"$work/secured_shell"
printf '%s\n' "ADBC is ann" "pyarrow is ann" "nobody is let in" >"$work/secured_python"
check "shell, TLS and password" "$work/secured_shell" secured_shell
check "Python, TLS and password" "$work/secured_python" "$cache/venv/bin/python" examples/python_secured.py "grpc+tls://$address" "$work/cert.pem" ann
check "Java, JDBC, TLS and password" "$birds" java_example Birds \
  "useEncryption=true&tlsRootCerts=$work/cert.pem&user=ann&password=$SKEIN_PASSWORD"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
