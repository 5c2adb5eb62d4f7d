// Any bytes as run.json, the record of what a run was made of; what is accepted is written and read again.
#include <optional>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "model/recipe/record/provenance.h"
#include "number/library/library.h"
#include "tests/fuzz/mutators/json.h"
#include "tests/fuzz/rows/read_rows.h"

namespace {

// The record, or the lists that stand in it as texts.
void change_record(std::string& text, mutators::Chance& chance) {
  nlohmann::ordered_json root = nlohmann::ordered_json::parse(text, nullptr, false);
  const char* key = chance() % 2 == 0 ? "lumen.run.files" : "lumen.run.formats";
  if (chance() % 2 == 0 || !root.is_object() || !root.contains(key) || !root[key].is_string())
    return mutators::change_json(text, chance);
  std::string list = root[key];
  mutators::change_json(list, chance);
  root[key] = list;
  text = root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const FormatLibrary formats = FormatLibrary::builtin();
  std::optional<model::recipe::Provenance> from;
  try {
    const auto path = fuzz::write("run.json", {reinterpret_cast<const char*>(data), size});
    from = model::recipe::provenance_of(model::recipe::read_record(path, formats), "run.json");
  } catch (const Error&) {
  }
  if (!from || from->compiler.empty()) return 0;
  try {
    const auto again = model::recipe::provenance_of(model::recipe::record_of(*from), "again");
    LUMEN_CHECK(again && again->files.size() == from->files.size() && again->formats == from->formats);
  } catch (const Error& e) {
    LUMEN_CHECK(false, "what was written is refused: {}", e.what());
  }
  return 0;
}

FUZZ_MUTATOR(change_record, 0)
