#!/usr/bin/env python3
"""A broken house is found: small trees, each with one breach, under tools/house.py.

Usage: tests/tools/house_test.py
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2] / "tools" / "house.py"
DOOR = "// Words.\n//\n// May include: {}.\n#pragma once\n"
OFFERS = "// Words.\n//\n// May include: {}.\n// Offers: {}.\n#pragma once\n"
SOUND = {
    "src/base/base.h": OFFERS.format("nothing", "error.h"),
    "src/base/error.h": "// Errors. Proved by tests/base/error_test.cpp.\n#pragma once\n",
    "src/lang/lang.h": DOOR.format("base") + '\n#include "base/error.h"\n',
    "tests/base/error_test.cpp": "// Nothing.\n",
    "README.md": "[words](src/base/error.h)\n",
    "formats/q1_x.lum": "format q1_x : block 32 {\n",
    "docs/reference/glossary.md": "## Retired words\n\n| retired | instead | where |\n|---|---|---|\n| `gizmo`, `old thing` | device | `src/base` |\n",
}


class House(unittest.TestCase):
    def said(self, changes: dict[str, str], *flags: str) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**SOUND, **changes}.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            run = subprocess.run([sys.executable, HOUSE, folder, *flags], capture_output=True, text=True)
            self.assertEqual(run.stderr, "")
            return run.returncode, run.stdout

    def assert_breach(self, changes: dict[str, str], words: str) -> None:
        code, out = self.said(changes)
        self.assertEqual(code, 1, out)
        self.assertIn(words, out)

    def test_sound(self):
        code, out = self.said({})
        self.assertEqual(code, 0, out)

    def test_layering(self):
        self.assert_breach({"src/base/up.h": '#include "lang/lang.h"\n'}, "base must not include lang/lang.h")

    def test_llvm_stays_in_emit(self):
        self.assert_breach({"src/base/up.h": "#include <llvm/IR/Module.h>\n"}, "only src/emit may see LLVM")

    def test_names_of_formats(self):
        self.assert_breach({"src/base/name.h": "// q1_x is fine.\n"}, "names 'q1_x'")

    def test_threads_through_one_door(self):
        words = "threads are started by base/threads/threads.h alone"
        for line in ("std::thread t(f);", "std::jthread t(f);", "std::async(f);", "pthread_create(&t, 0, f, 0);",
                     "#pragma omp parallel for", "#include <omp.h>"):
            self.assert_breach({"src/base/starts.h": f"// Words.\n#pragma once\n{line}\n"}, words)
        for line in ("std::this_thread::yield();", "std::thread::id who;", "#pragma omp simd"):
            self.assertNotIn(words, self.said({"src/base/starts.h": f"// Words.\n#pragma once\n{line}\n"})[1])

    def test_options_are_rows_of_the_table(self):
        words = "declares an option; add a row to the table"
        table = OFFERS.format("nothing", "declare.h")
        for line in ('sub->add_option("--x", x);', 'app.add_flag("--x", x);', 'app.add_option_function<int>("--x", f);',
                     'app.add_flag_callback("--x", f);'):
            self.assert_breach({"src/cli/cli.h": DOOR.format("nothing") + line + "\n"}, words)
            rows = {"src/cli/settings/settings.h": table, "src/cli/settings/declare.h": "// Words.\n#pragma once\n" + line + "\n"}
            self.assertNotIn(words, self.said(rows)[1])
        self.assertNotIn(words, self.said({"src/cli/cli.h": DOOR.format("nothing") + "flags.add_flags(app);\n"})[1])

    def test_left_for_later(self):
        self.assert_breach({"src/base/later.h": "// TO" "DO\n"}, "left in the code")

    def test_retired_words(self):
        self.assert_breach({"src/base/word.h": "// Any gizmo_.\n"}, "src/base/word.h:1: 'gizmo' is a retired word; say device")
        self.assert_breach({"src/base/word.h": "int a_gizmo;\n"}, "retired word")
        self.assert_breach({"src/base/word.h": '// "An old thing", it was said.\n'}, "'old thing' is a retired word")
        self.assert_breach({"src/base/word.h": "// Of a word.\n"}, "a comment begins with 'Of'")
        code, out = self.said({"src/base/word.h": 'const char* x = "gizmo";  // gizmos are something else\n'})
        self.assertEqual(code, 0, out)

    def test_retired_words_of_help(self):
        glossary = SOUND["docs/reference/glossary.md"] + "| `so many` | the number | `help` |\n"
        files = {"docs/reference/glossary.md": glossary, "src/cli/cli.h": DOOR.format("nothing") + 'const char* a = "Takes so many";\n'}
        self.assert_breach(files, "src/cli/cli.h:5: 'so many' is a retired word; say the number")
        verbs = {"apps/a/verbs/verbs.h": DOOR.format("nothing") + 'const char* a = "Takes so many";\n'}
        self.assert_breach({"docs/reference/glossary.md": glossary, **verbs}, "apps/a/verbs/verbs.h:5: 'so many' is a retired word")
        files["src/cli/cli.h"] = DOOR.format("nothing") + "// So many, so many.\nconst char* a = \"--so many\";\n"
        code, out = self.said(files)
        self.assertEqual(code, 0, out)

    def test_retired_words_of_definitions(self):
        glossary = SOUND["docs/reference/glossary.md"] + "| `so many`, `behind` | the number, after | `models`, `recipes` |\n"
        files = {"docs/reference/glossary.md": glossary}
        for name, line in (("models/a.lum", "# So many layers.\n"), ("models/a.lum", 'text = "# one"  # behind it\n'),
                           ("models/in/b.toml", 'r = ["x"], because = "it is behind the layer"\n'),
                           ("models/a.lum", 'unread "x" because "it is behind"\n'), ("recipes/c.toml", 'doc = "so many steps"\n')):
            self.assert_breach({**files, name: line}, f"{name}:1: '{'so many' if 'so many' in line.lower() else 'behind'}' is a retired word")
        sound = {"models/a.lum": 'fn behind(x) = x  # `behind` is its name\nunread "so many" because "it is after"\n',
                 "models/b.toml": 'behind = ["# behind"]\n', "formats/c.lum": "# behind\n", "models/d.md": "# behind\n"}
        code, out = self.said({**files, **sound})
        self.assertEqual(code, 0, out)

    def test_long_functions(self):
        long = "".join(f"  x += {i};  // }}\n" for i in range(100))
        said = "a function of 102 lines"
        self.assert_breach({"src/base/f.cpp": f"namespace a {{\nint f(int x) {{\n{long}}}\n}}\n"}, "src/base/f.cpp:2: " + said)
        self.assert_breach({"src/base/f.cpp": f"struct A {{\n  A() : a_{{1}}, b_(2) {{\n{long}}}\n}};\n"}, "src/base/f.cpp:2: " + said)
        self.assert_breach({"src/base/f.h": f"template <class T>\nauto f(T x) const noexcept -> T {{\n{long}}}\n"}, "103 lines")
        self.assert_breach({"src/base/f.cpp": f"const F kTable[] = {{\n{{1, [](int x) {{\n{long}}}}}}};\n"}, said)
        self.assert_breach({"src/base/f.cpp": f"void f() {{\n  static const F kTable[] = {{\n[](int x) {{\n{long}}}}};\n}}\n"}, said)

    def test_tables_are_no_long_functions(self):
        rows = "".join(f"    {{{i}, 2}},\n" for i in range(200))
        cases = "".join(f"    case {i}: return 2;\n" for i in range(200))
        for text in (f"const P kTable[] = {{\n{rows}}};\n", f"int f() {{\n  static const P kTable[] = {{\n{rows}}};\n  return 1;\n}}\n",
                     f"int f(int x) {{\n  switch (x) {{\n{cases}  }}\n}}\n"):
            code, out = self.said({"src/base/f.cpp": text})
            self.assertEqual(code, 0, out)

    def test_casts_do_not_grow(self):
        self.assert_breach({"src/base/f.cpp": "int a = static_cast<int>(1);\n" * 4000}, "static_cast stands 4000 times")

    def test_include_cycle(self):
        self.assert_breach({"src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": '#include "base/a.h"\n'}, "include cycle")

    def test_room_too_full(self):
        self.assert_breach({f"src/base/f{i}.h": "" for i in range(20)}, "src/base: 22 files")
        self.assert_breach({f"tests/base/f{i}_test.cpp": "" for i in range(20)}, "tests/base: 21 files")

    def test_fixtures_are_no_sources(self):
        code, out = self.said({f"tests/base/fixtures/f{i}.py": "" for i in range(30)})
        self.assertEqual(code, 0, out)

    def test_circle_of_a_room_and_one_in_it(self):
        self.assert_breach(
            {"src/base/a.h": '#include "base/in/in.h"\n', "src/base/in/in.h": DOOR.format("base") + '\n#include "base/error.h"\n'},
            "in a circle: base, base/in")

    def test_map_of_tests(self):
        _, out = self.said({"tests/base/more_test.cpp": "", "src/base/in/in.h": DOOR.format("nothing")}, "--tests")
        self.assertIn("src/base:\n  tests/base/error_test.cpp\n  tests/base/more_test.cpp\nsrc/base/in: none of its own\n", out)

    def test_map_that_is_old(self):
        code, out = self.said({"docs/reference/tests.md": "old"})
        self.assertEqual(code, 1, out)
        self.assertIn("docs/reference/tests.md: not the tests that there are", out)
        code, out = self.said({"docs/reference/tests.md": "old"}, "--write-doors")
        self.assertEqual(code, 0, out)

    def test_traces(self):
        def page(steps: str, count: int = 11) -> str:
            return "# Tour\n\n" + "".join(f"### Trace: number {i}\n\n{steps}\n" for i in range(count)) + "## End\n\n1. `none.h`: no step.\n"
        step = "1. `base/error.h`: `A::f` and `--flag`\n   are here.\n"
        files = {"src/base/error.h": "// Words.\n#pragma once\nint f(int x);\n"}
        code, out = self.said({**files, "docs/tour.md": page(step)})
        self.assertEqual(code, 0, out)
        for steps, words in ((step.replace("error.h", "gone.h"), "'number 0' names src/base/gone.h, which does not exist"),
                             (step.replace("A::f", "A::g"), "names A::g, which src/base/error.h does not have"),
                             (4 * step, "visits base 4 times; 3 are the most")):
            self.assert_breach({**files, "docs/tour.md": page(steps)}, words)
        self.assert_breach({**files, "docs/tour.md": page(step, 10)}, "10 traces; 11 are promised")

    def test_questions(self):
        row = "| Where are words? | `{}` | `lang` |\n"
        code, out = self.said({"docs/tour.md": row.format("words")})
        self.assertEqual(code, 0, out)
        self.assert_breach({"docs/tour.md": row.format("sentences")}, "the door of lang does not say 'sentences'")
        more = {f"src/lang/{name}/{name}.h": DOOR.format("nothing") for name in ("a", "b")}
        self.assert_breach({**more, "docs/tour.md": row.format("words")}, "4 doors say 'words'")

    def test_floors_of_documents(self):
        floors = ["base", "lang", "number", "graph", "kernel", "emit", "run", "model", "cli", "api"]
        table = "".join(f"{number:2}  {name}  words\n" for number, name in enumerate(floors, 1))
        tour = "".join(f"## {number}. {name}: words\n\n" for number, name in enumerate(floors, 1))
        code, out = self.said({"README.md": f"A stack of ten floors.\n\n```\n{table}```\n", "docs/tour.md": tour})
        self.assertEqual(code, 0, out)
        self.assert_breach({"README.md": "A stack of nine floors.\n"}, "README.md: says nine floors; there are ten")
        self.assert_breach({"README.md": f"```\n{table[:table.index('10')]}```\n"}, "README.md: floors that are not those of the source: ['10 api']")
        self.assert_breach({"docs/tour.md": tour.replace("9. cli", "9. app")}, "docs/tour.md: floors that are not those of the source")

    def test_prose_of_documents(self):
        self.assert_breach({"docs/a.md": "# A\n\n" + "word " * 19 + "wordy\n" + "x " * 81 + "\n"}, "docs/a.md:4: 162 columns")
        self.assert_breach({"docs/a.md": "# A\n\nA short one.\n\n" + "word word word\n" * 27}, "docs/a.md:5: a paragraph of 81 words")
        for text in ("```\n" + "x " * 90 + "\n```\n", "| " + "x " * 90 + "|\n", "<!-- " + "x " * 90 + "-->\n", "word word word\n" * 26):
            _, out = self.said({"docs/a.md": text})
            self.assertNotIn("docs/a.md", out)

    def test_folders_through_one_door(self):
        words = "ends the program where memory is short"
        for line in ("for (fs::directory_iterator i(p), e; i != e; ++i) {}", "fs::recursive_directory_iterator i(p);", "fs::remove_all(p);",
                     "std::filesystem::copy(a, b);"):
            self.assert_breach({"src/base/walks.h": f"// Words.\n#pragma once\n{line}\n"}, words)

    def test_floors_inside_model(self):
        low, high = "src/model/data/data.h", "src/model/train/train.h"
        files = {low: DOOR.format("model/train") + '\n#include "model/train/train.h"\n', high: DOOR.format("nothing")}
        self.assert_breach(files, "model/data must not include model/train/train.h")
        files = {low: DOOR.format("nothing"), high: DOOR.format("model/data") + '\n#include "model/data/data.h"\n'}
        _, out = self.said(files)
        self.assertNotIn("must not include", out)
        self.assert_breach({"src/model/attic/attic.h": DOOR.format("model/data") + '\n#include "model/data/data.h"\n', low: DOOR.format("nothing")},
                           "model/attic is on no floor")

    def test_namespaces_inside_model(self):
        def opens(space: str, inside: str, place: str = "src/model/data/data.h") -> dict[str, str]:
            return {place: DOOR.format("nothing") + f"\nnamespace {space} {{\n{inside}\n}}  // namespace {space}\n"}

        for space in ("lumen::model", "lumen::model::train", "lumen::run", "lumen"):
            self.assert_breach(opens(space, "struct A {};"), f"src/model/data/data.h: opens namespace {space}; ")
        self.assert_breach(opens("lumen::model::data", "struct A {};", "src/run/engine/engine.h"), "opens namespace lumen::model::data; ")
        for space, inside in (("lumen::model::data", "struct A {};"), ("lumen::model::data::rows", "struct A {};"), ("lumen::run", "class Engine;")):
            _, out = self.said(opens(space, inside))
            self.assertNotIn("opens namespace", out)

    def test_applications(self):
        door = DOOR.format("base") + '\n#include "base/error.h"\n'
        files = {"apps/paint/paint.h": door, "apps/paint/verbs/verbs.h": DOOR.format("apps/paint") + '\n#include "apps/paint/paint.h"\n'}
        code, out = self.said(files)
        self.assertEqual(code, 0, out)
        self.assert_breach({**files, "src/lang/lang.h": DOOR.format("apps/paint") + '\n#include "apps/paint/paint.h"\n'},
                           "src/lang/lang.h: lang must not include apps/paint/paint.h")
        self.assert_breach({**files, "src/lang/lang.h": DOOR.format("base") + '\n#include "base/error.h"\nvoid add_paint();\n'},
                           "src/lang/lang.h:7: names 'paint', an application")
        self.assert_breach({"apps/paint/paint.h": DOOR.format("lang") + '\n#include "lang/lang.h"\n'}, "apps must not include lang/lang.h")
        self.assert_breach({"apps/classify/classify.h": DOOR.format("apps/diffuse") + '\n#include "apps/diffuse/diffuse.h"\n',
                            "apps/diffuse/diffuse.h": door}, "apps/classify must not include apps/diffuse/diffuse.h")
        self.assert_breach({"apps/paint/paint.h": DOOR.format("nothing") + '\n#include "base/error.h"\n'},
                           "the door apps/paint/paint.h does not allow base")
        self.assert_breach({"apps/paint/a.h": '#include "apps/paint/b.h"\n'}, "apps/paint/a.h: includes apps/paint/b.h, which does not exist")
        self.assert_breach({"apps/paint/paint.h": door + "// Any gizmo.\n", "docs/reference/glossary.md":
                            "## Retired words\n\n| retired | instead | where |\n|---|---|---|\n| `gizmo` | device | `src` |\n"},
                           "apps/paint/paint.h:7: 'gizmo' is a retired word")

    def test_circle_of_folders_by_different_rooms(self):
        # base/a/x -> base/b, base/b/y -> base/a: no room is in a circle, but the folders a and b are.
        files = {"src/base/a/a.h": DOOR.format("nothing"), "src/base/a/x/x.h": DOOR.format("base/b") + '\n#include "base/b/b.h"\n',
                 "src/base/b/b.h": DOOR.format("nothing"), "src/base/b/y/y.h": DOOR.format("base/a") + '\n#include "base/a/a.h"\n'}
        self.assert_breach(files, "folders of base include each other in a circle: base/a, base/b")
        del files["src/base/b/y/y.h"]
        _, out = self.said(files)
        self.assertNotIn("circle", out)

    def test_no_door(self):
        self.assert_breach({"src/base/in/other.h": "// Others.\n"}, "src/base/in: no door")

    def test_door_is_silent(self):
        self.assert_breach({"src/base/base.h": "// Words.\n//\n// Offers: error.h.\n#pragma once\n"}, "which rooms may be included")
        self.assert_breach({"src/base/base.h": "// May include: nothing.\n#pragma once\n"}, "what the room is for")

    def test_door_shut(self):
        self.assert_breach({"src/lang/lang.h": DOOR.format("nothing") + '\n#include "base/error.h"\n'},
                           "the door lang/lang.h does not allow base")

    def test_door_too_wide(self):
        self.assert_breach({"src/base/base.h": OFFERS.format("number", "error.h")}, "allows number, which nobody in the room includes")

    def test_not_offered(self):
        self.assert_breach({"src/base/base.h": DOOR.format("nothing")}, "the door base/base.h does not offer")
        code, out = self.said({"src/base/base.h": DOOR.format("nothing") + '\n#include "base/error.h"\n'})
        self.assertEqual(code, 0, out)

    def test_include_missing(self):
        self.assert_breach({"src/base/a.h": '#include "base/b.h"\n'}, "includes base/b.h, which does not exist")

    def test_proof_missing(self):
        self.assert_breach({"src/base/a.h": "// A. Proved by\n// tests/base/error_test.cpp and a_test.cpp.\n"}, "proved by a_test.cpp")

    def test_link_missing(self):
        self.assert_breach({"docs/tour.md": "[a](../src/base/a.h)\n"}, "docs/tour.md: links to ../src/base/a.h")
        self.assert_breach({"docs/guide/a.md": "[`b`](b.md)\n", "docs/b.md": ""}, "docs/guide/a.md: links to b.md, which does not exist")
        self.assert_breach({"tests/base/notes.md": "![a picture](a.png)\n"}, "tests/base/notes.md: links to a.png")

    def test_heading_missing(self):
        page = "# A page\n\n```sh\n# no heading\n```\n\n## Two: `words`, twice\n\n## Two words twice\n\n<a id=\"old\"></a>\n"
        for anchor in ("a-page", "two-words-twice", "two-words-twice-1", "old"):
            code, out = self.said({"docs/b.md": page, "docs/a.md": f"[b](b.md#{anchor})\n"})
            self.assertEqual(code, 0, out)
        for anchor in ("no-heading", "two", "two-words-twice-2"):
            self.assert_breach({"docs/b.md": page, "docs/a.md": f"[b](b.md#{anchor})\n"}, f"docs/a.md: links to b.md#{anchor}; b.md has no")
        self.assert_breach({"docs/a.md": "# A\n\n[here](#b)\n"}, "docs/a.md: links to #b; a.md has no such heading")

    def test_links_that_are_none(self):
        for text in ("```sh\na[1](no.md)\n```\n", "`a[1](no.md)`\n", "[far](https://example.org/no.md#x)\n"):
            code, out = self.said({"docs/a.md": text})
            self.assertEqual(code, 0, out)

    def test_page_that_the_index_leaves_out(self):
        index = {"docs/README.md": "[words](reference/glossary.md), [why](decisions)\n", "docs/decisions/0001.md": ""}
        code, out = self.said(index)
        self.assertEqual(code, 0, out)
        self.assert_breach({**index, "docs/guide/a.md": ""}, "docs/guide/a.md: docs/README.md does not link to this page")

    def test_columns(self):
        self.assert_breach({"src/base/a.h": "// " + "x" * 120 + "\n"}, "src/base/a.h:1: 123 columns")

    def test_format(self):
        import shutil
        if not shutil.which("clang-format-22"):
            self.skipTest("clang-format-22 is not here")
        self.assert_breach({".clang-format": "BasedOnStyle: Google\n", "src/base/a.h": "int  x;\n"}, "src/base/a.h: not as")

    def test_table(self):
        code, out = self.said({}, "--rooms")
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"src/lang +1 files +6 lines  Words\.")

    def test_doors_are_written(self):
        code, out = self.said({"src/lang/lang.h": DOOR.format("nothing") + '\n#include "base/error.h"\n',
                               "src/base/base.h": DOOR.format("lang")}, "--write-doors")
        self.assertEqual(code, 0, out)


if __name__ == "__main__":
    unittest.main()
