// Any bytes as a .lum file: parsed, printed and read back, checked as functions and models. An Error is an answer; a
// crash, a hang or a text that does not come back is a find.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/check.h"
#include "graph/elaborate/elaborate.h"
#include "lang/parser.h"
#include "tests/fuzz/mutators/words.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  try {
    const auto source =
        std::make_shared<Source>(Source{"fuzz.lum", std::string(reinterpret_cast<const char*>(data), size)});
    const lang::File file = lang::parse_file(source);
    const std::string printed = lang::print_file(file);
    std::string again;
    try {
      again = lang::print_file(lang::parse_file(std::make_shared<Source>(Source{"printed.lum", printed})));
    } catch (const Error& e) {
      LUMEN_CHECK(false, "the printed text is refused: {}", e.what());
    }
    LUMEN_CHECK(printed == again, "the printed text does not come back");
    graph::Scope scope;
    scope.files = {&file};
    graph::check_file(scope, file);
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_code, 0)
