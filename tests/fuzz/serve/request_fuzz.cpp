// Any bytes as the body of a request of every kind that the server reads: it is read, with what it asks for within its
// bounds, or refused with a status of the client's.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "model/serve/forms/messages.h"
#include "model/serve/forms/responses.h"
#include "model/serve/request.h"
#include "model/templates/chat_template.h"
#include "tests/fuzz/mutators/json.h"

namespace {

lumen::model::serve::ServedModel& served_letters() {
  using namespace lumen::model::serve;
  using namespace lumen::model::templates;
  using namespace lumen::model::text;
  static ServedModel model("letters", Tokenizer::characters("abcdefghij {}[]\":,0123456789"), 29);
  if (!model.chat) {
    model.longest = model.longest_read = 64;
    model.most_outputs = 4;
    model.chat.emplace(model.tokenizer, ChatTemplate::parse("{% for m in messages %}{{ m['content'] }}{% endfor %}"));
  }
  return model;
}

void check_bounds(const lumen::model::serve::GenerationRequest& r) {
  const lumen::model::serve::ServedModel& model = served_letters();
  LUMEN_CHECK(r.n >= 1 && r.n * std::ssize(r.prompts) <= model.most_outputs && r.top <= 20);
  for (const auto& prompt : r.prompts) {
    LUMEN_CHECK(!prompt.empty() && std::ssize(prompt) <= model.longest);
    for (const auto id : prompt) LUMEN_CHECK(id >= 0 && id < model.vocabulary);
  }
  (void)lumen::model::infer::Sampler(r.sampling);  // takes what was let through
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  using namespace lumen::model::serve;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ServedModel& model = served_letters();
  const auto try_out = [](const auto& read) {
    try {
      read();
    } catch (const Refusal& refusal) {
      LUMEN_CHECK(refusal.status >= 400 && refusal.status < 500);
      LUMEN_CHECK(!refusal.body().empty() && !messages_error(refusal).empty());
    } catch (const Error&) {
    }
  };
  nlohmann::ordered_json body;
  bool is_read = false;
  try_out([&] {
    body = request_object(bytes);
    is_read = true;
  });
  if (!is_read) return 0;
  try_out([&] { (void)request_model(body); });
  try_out([&] { check_bounds(read_chat(body, model)); });
  try_out([&] { check_bounds(read_completion(body, model)); });
  try_out([&] { check_bounds(read_chat(chat_of_messages(body, false), model)); });
  ResponseStore store;
  try_out([&] { check_bounds(read_chat(read_responses(body, store).chat, model)); });
  try_out([&] { (void)read_embedding(body, model); });
  try_out([&] { (void)read_tokenize(body, model); });
  try_out([&] { (void)read_detokenize(body, model); });
  return 0;
}

FUZZ_MUTATOR(mutators::change_json, 0)
