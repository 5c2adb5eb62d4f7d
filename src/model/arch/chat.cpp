#include "model/arch/chat.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/chat_files.h"
#include "model/text/tokenizer/file/gguf_vocabulary.h"

namespace lumen::model {

void take_chat(Model& model, const ChosenTemplate& chosen) {
  LUMEN_CHECK(model.tokenizer.has_value());
  const Tokenizer before = *model.tokenizer;
  model.tokenizer = with_chat(before, chosen);
  const std::vector<TokenId> ends = model.tokenizer->end_of_generation(), known = before.end_of_generation();
  if (before.chat_template() == chosen.text && ends == known) return;
  std::vector<TokenId> more;
  std::set_difference(ends.begin(), ends.end(), known.begin(), known.end(), std::back_inserter(more));
  replace_chat_template(chosen.text, more, model.tokenizer->size(), model.files, model.metadata);
  if (!more.empty() && !has_no_tokenizer(model.metadata)) ends_to_gguf(*model.tokenizer, more, model.metadata);
}

std::string adapter_chat_template(const std::filesystem::path& adapter) {
  std::error_code failure;
  const bool is_folder = std::filesystem::is_directory(adapter, failure);
  if (!is_folder && adapter.extension() != ".json" && adapter.extension() != ".safetensors") {
    const MappedFile file(adapter);
    return read_gguf_metadata(file.bytes(), adapter.string()).text(kTemplateKey, "");
  }
  const auto folder = is_folder ? adapter : adapter.parent_path();
  const auto templates = templates_of(small_files(folder));
  const auto usual = templates.find("");
  return usual == templates.end() ? std::string() : usual->second;
}

}  // namespace lumen::model
