// Any bytes as a task that measures a model; what is accepted makes a question of a row, or refuses the row.
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "model/eval/task.h"
#include "tests/fuzz/mutators/words.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const nlohmann::ordered_json row = nlohmann::ordered_json::parse(
      R"({"question":"q","choices":["a","b"],"answer":1,"text":"t","label":0,"gold":"b","a":{"b":[1,null,"x"]}})");
  try {
    const model::eval::Task task = model::eval::Task::parse({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
    if (!task.members.empty()) return 0;
    try {
      const model::eval::Question q = model::eval::question_of(task, row, "row 1");
      LUMEN_CHECK(q.choices.empty() || q.right < q.choices.size());
    } catch (const Error&) {
    }
    model::eval::example_of(task, row, "row 1");
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_settings, 0)
