"""Takes the programs out of a page of docs/clients, with the outputs it shows.

python snippets.py PAGE LANGUAGE DIRECTORY HOST:PORT

The blocks of python make one program, snippet.py; of other languages each is a
program of its own: snippet-1.js, snippet-2/main.go, Snippet.java. All that is
shown as ```text goes to expected.txt. Addresses are those of HOST:PORT.
"""

import pathlib
import re
import sys

page, language, directory, address = sys.argv[1:]
text = pathlib.Path(page).read_text()
blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
programs = [code.replace("127.0.0.1:8815", address) for kind, code in blocks if kind == language]
if not programs:
    sys.exit(f"{page} has no program in {language}")
if language == "python":
    programs = ["\n".join(programs)]
target = pathlib.Path(directory)
target.mkdir(parents=True, exist_ok=True)
names = {"python": "snippet.py", "js": "snippet-{}.mjs", "go": "snippet-{}/main.go", "java": "Snippet.java"}
for number, program in enumerate(programs, 1):
    file = target / names[language].format(number)
    file.parent.mkdir(exist_ok=True)
    file.write_text(program)
(target / "expected.txt").write_text("".join(code for kind, code in blocks if kind == "text"))
