// needs: none. What lora_reference.py compares with peft: a model, adapters before and after five steps, batches,
// losses.
#include <cstdlib>
#include <fstream>

#include "model/arch/adapter/adapter_write.h"
#include "model/arch/checkpoint/write.h"
#include "tests/model/train/adapter/lora_case.h"

namespace lumen::model::train {
namespace {

struct Kind {
  const char* name;
  std::vector<std::string> targets;
  void (*change)(recipe::AdapterSettings&);
};

TEST(LoraExchange, WritesFiveSteps) {
  const char* folder = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!folder) GTEST_SKIP() << "for lora_reference.py";
  run::Engine engine = make_engine(2);
  const arch::Model m = tiny_model(2);
  const text::Tokenizer letters = text::Tokenizer::characters("abcdefghijk");
  std::string text;
  for (int i = 0; i < 600; ++i) text += static_cast<char>('a' + (i * i * 7 + i / 5) % 11);
  const auto data = std::make_shared<data::Dataset>(data::Dataset::from_text(text, letters));
  const std::filesystem::path out = folder;
  arch::Model base = m;
  base.tokenizer = letters;
  write_hf(base, out / "base");
  const Kind kinds[] = {
      {"lora", {"all-linear"}, [](recipe::AdapterSettings&) {}},
      {"rs_lora", {"wq", "down", "output"}, [](recipe::AdapterSettings& s) { s.rs_lora = true; }},
      {"lora_plus", {"all-linear"}, [](recipe::AdapterSettings& s) { s.b_rate = 4; }},
      {"embedding", {"embed", "wv"}, [](recipe::AdapterSettings&) {}},
      {"dora", {"all-linear"}, [](recipe::AdapterSettings& s) { s.method = "dora"; }},
  };
  std::ofstream cases(out / "cases.json");
  cases << "[";
  for (const Kind& kind : kinds) {
    recipe::Recipe recipe = adapter_recipe();
    recipe.schedule.shape = recipe::Schedule::Shape::constant;
    recipe.schedule.warmup = 0;
    recipe.optimizer.weight_decay = 0;
    recipe.optimizer.max_norm = 1;
    recipe.adapter.targets = kind.targets;
    kind.change(recipe.adapter);
    const auto batches = window_batches(data, recipe.seed, recipe.batch, recipe.length, 1);
    Trainer trainer(engine, base, recipe, batches);
    const std::filesystem::path begin = out / kind.name / "begin", end = out / kind.name / "end";
    std::filesystem::create_directories(begin.parent_path());
    write_adapter_folder(base, trainer.adapter(), begin);
    std::vector<std::string> losses, tokens, targets;
    for (int step = 0; step < 5; ++step) {
      const data::Batch batch = batches->training(step, 0);
      tokens.push_back(fmt::format("[{}]", fmt::join(batch.tokens, ", ")));
      targets.push_back(fmt::format("[{}]", fmt::join(batch.targets, ", ")));
      losses.push_back(fmt::format("{}", trainer.step().loss));
    }
    write_adapter_folder(base, trainer.adapter(), end);
    cases << (&kind == kinds ? "" : ",\n")
          << fmt::format(
                 "{{\"name\": \"{}\", \"rate\": {}, \"b_rate\": {}, \"rows\": {}, \"length\": {}, \"losses\": [{}], "
                 "\"tokens\": [{}], \"targets\": [{}]}}",
                 kind.name, recipe.schedule.peak, recipe.adapter.b_rate, recipe.batch, recipe.length,
                 fmt::join(losses, ", "), fmt::join(tokens, ", "), fmt::join(targets, ", "));
  }
  cases << "]\n";
}

}  // namespace
}  // namespace lumen::model::train
