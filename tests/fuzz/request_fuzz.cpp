// Any bytes as a request of a server: the first chooses what it is for, the others are its body. It is read or refused.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "model/serve/request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const model::ServedModel& served = [] -> model::ServedModel& {
    static model::ServedModel letters("letters", model::Tokenizer::characters("abcdefghij "), 11);
    letters.longest = letters.longest_read = 64;
    letters.chat.emplace(letters.tokenizer,
                         model::ChatTemplate::parse("{% for m in messages %}{{ m['content'] }}{% endfor %}"));
    return letters;
  }();
  if (size == 0) return 0;
  try {
    const auto body = model::request_object(std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
    (void)model::request_model(body);
    switch (data[0] % 5) {
      case 0:
        (void)model::read_completion(body, served);
        break;
      case 1:
        (void)model::read_chat(body, served);
        break;
      case 2:
        (void)model::read_embedding(body, served);
        break;
      case 3:
        (void)model::read_tokenize(body, served);
        break;
      default:
        (void)model::read_detokenize(body, served);
    }
  } catch (const model::Refusal& refusal) {
    (void)refusal.body();
  }
  return 0;
}
