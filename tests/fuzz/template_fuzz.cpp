// Any bytes as a template of a chat: it prints or is refused, within limits that are lower than those of programs.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "model/templates/chat_template.h"
#include "tests/fuzz/mutators/words.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const nlohmann::ordered_json context = nlohmann::ordered_json::parse(
      R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"안녕 <|x|>"},{"role":"assistant","content":null,
      "tool_calls":[{"function":{"name":"f","arguments":{"a":1.5,"b":[true,null]}}}]}],"tools":[{"type":"function"}],
      "add_generation_prompt":true,"bos_token":"<s>"})");
  try {
    model::templates::ChatTemplate::parse({reinterpret_cast<const char*>(data), size})
        .render(context, [] { return std::tm{}; }, {}, {.steps = 1'000'000, .seconds = 0.05});
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_template, 0)
