#include "hostile/corpus.h"

#include <fmt/format.h>

#include <fstream>
#include <stdexcept>

#include "hostile/trial.h"

namespace lumen::hostile {
namespace fs = std::filesystem;
namespace {

const Words kInspect = {"inspect", "{in}"};
const Words kTokenize = {"tokenize", "-m", "{in}", "A few words, 12 345."};
const Words kRun = {"run", "-m", "{in}", "-p", "a", "-n", "2", "--temp", "0", "-c", "64"};
const Words kPerplexity = {"perplexity", "-m", "{in}", "-f", "{text}", "-c", "16"};
const Words kToFolder = {"export", "{in}", "{out}/folder", "--to", "hf"};
const Words kToGguf = {"export", "{in}", "{out}/file.gguf"};
const Words kQuantize = {"quantize", "{in}", "{out}/file.gguf", "q8_0", "--fallback", "f16", "--allow-requantize"};
const Words kEmbed = {"embed", "-m", "{in}", "a"};

std::vector<Words> model_commands() {
  return {kInspect, kRun, kRun, kPerplexity, kToFolder, kToGguf, kQuantize, kEmbed};
}

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

}  // namespace

std::vector<Case> corpus(const fs::path& tree, const fs::path& work, const std::string& cache) {
  const auto make = [&](Words words) {
    words.insert(words.end(), {"--cache", cache, "-q"});
    const Ending done = start(words, work, {.seconds = 120});
    if (done.code != 0)
      throw std::runtime_error(
          fmt::format("lumen {}: code {}, signal {}\n{}", fmt::join(words, " "), done.code, done.signal, done.error));
  };
  const fs::path fixtures = tree / "tests/model/fixtures", seeds = tree / "tests/fuzz/corpus", made = work / "made";
  fs::create_directories(made);
  const std::string tiny = made / "tiny";
  make({"train", "--shape", "tiny", "--steps", "2", "-o", tiny});
  make({"quantize", tiny + "/model.gguf", made / "packed.gguf", "q4_0", "--fallback", "q8_0"});

  std::vector<Case> out;
  // GGUF models, with words and without.
  for (const char* name : {"llama", "gemma2_even", "mixtral", "deepseek_v3_even", "gpt2", "exaone4"}) {
    if (const fs::path file = fixtures / "converted" / (std::string(name) + ".gguf"); fs::exists(file))
      out.push_back({file, "", {kInspect, kToFolder, kQuantize, kToGguf}});
  }
  out.push_back({tiny + "/model.gguf", "", model_commands()});
  out.push_back({made / "packed.gguf", "", model_commands()});
  for (const char* name : {"pairs.gguf", "pieces.gguf"}) {
    std::vector<Words> commands = model_commands();
    commands.insert(commands.end(), {kTokenize, kTokenize, {"chat", "-m", "{in}", "-p", "Good day", "-n", "2"}});
    out.push_back({fixtures / "converted_words" / name, "", commands});
  }
  for (const auto& file : fs::directory_iterator(seeds / "gguf"))
    out.push_back({file.path(), "", {kInspect, kTokenize, kToGguf}});
  // Folders.
  for (const char* name : {"llama", "gemma3", "qwen3_moe", "deepseek_v3", "llama_longrope", "gpt2"}) {
    const fs::path folder = fixtures / "families" / name;
    for (const char* file : {"config.json", "model.safetensors"})
      out.push_back({folder, file, {kToGguf, kQuantize, kInspect}});
  }
  for (const char* name : {"pairs", "pieces"}) {
    const fs::path folder = fixtures / "converted_words" / name;
    for (const auto& file : fs::directory_iterator(folder)) {
      std::vector<Words> commands = {kToGguf, kRun, kPerplexity, kTokenize};
      out.push_back({folder, file.path().filename(), commands});
    }
  }
  for (const auto& file : fs::directory_iterator(fixtures / "packed")) out.push_back({file.path(), "", {kInspect}});
  // Tokenizers.
  for (const auto& file : fs::directory_iterator(seeds / "tokenizer")) {
    out.push_back({file.path(), "", {kTokenize, {"tokenize", "-m", "{in}", "--stats", "-f", "{text}"}}});
  }
  for (const auto& file : fs::directory_iterator(seeds / "sentencepiece"))
    out.push_back({file.path(), "", {kTokenize}});
  // Adapters, checkpoints.
  const std::string base = fixtures / "families" / "llama";
  for (const auto& folder : fs::directory_iterator(fixtures / "adapters")) {
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      out.push_back({folder.path(), file, {{"bench", "-m", base, "-p", "2", "-n", "1", "-r", "1", "--lora", "{in}"}}});
  }
  for (const auto& file : fs::directory_iterator(tiny + "/checkpoint-2")) {
    out.push_back(
        {tiny,
         "checkpoint-2/" + file.path().filename().string(),
         {{"inspect", "{in}/checkpoint-2"}, {"train", "--shape", "tiny", "--steps", "2", "-o", "{in}", "--resume"}}});
  }
  // Texts of the language and of data.
  for (const char* name : {"q4_k", "nf4", "microscale", "q2_k", "tq1_0"}) {
    const std::string text = std::string(name) + ".lum";
    write(made / name / text, [&] {
      std::ifstream in(tree / "formats" / text, std::ios::binary);
      std::string all{std::istreambuf_iterator<char>(in), {}};
      if (const size_t at = all.find("format " + std::string(name)); at != std::string::npos)
        all.replace(at + 7, std::string(name).size(), "mine_" + std::string(name));
      if (const size_t at = all.find(", gguf "); at != std::string::npos)
        all.erase(at, all.find_first_of(",{", at + 1) - at);
      return all;
    }());
    out.push_back({made / name, text, {{"format", "list", "--formats", "{in}"}}});
  }
  for (const char* name : {"schema.json"}) {
    out.push_back({seeds / "grammar" / name,
                   "",
                   {{"run", "-m", tiny + "/model.gguf", "-p", "a", "-n", "4", "--json-schema-file", "{in}"}}});
  }
  for (const char* name : {"list.gbnf"}) {
    out.push_back({seeds / "grammar" / name,
                   "",
                   {{"run", "-m", tiny + "/model.gguf", "-p", "a", "-n", "4", "--grammar-file", "{in}"}}});
  }
  write(made / "prompts.jsonl", "{\"prompt\": \"ROMEO:\"}\n{\"prompt\": \"a\"}\n");
  out.push_back({made / "prompts.jsonl", "", {{"run", "-m", tiny + "/model.gguf", "--prompts", "{in}", "-n", "2"}}});
  return out;
}

}  // namespace lumen::hostile
