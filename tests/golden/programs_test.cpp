// Needs: none. Every kernel of whole programs (a step, a prompt, a training step of models of a real width): its plan
// and digest where it first occurs, and what all distinct ones cost by their steps, against tests/golden/programs. With
// LUMEN_KERNEL_TEXTS=DIR the texts themselves are written there.
#include <gtest/gtest.h>

#include "golden_text.h"
#include "made.h"
#include "model/arch/family/family.h"
#include "model/recipe/optimizer/optimizer.h"

namespace lumen::golden {
namespace {

struct Program {
  std::string name, family, size;
  std::map<std::string, double> config;
  std::string function;
  graph::Bindings symbols;
  std::string format = {};
  Scalar products = Scalar::f32;
};

std::vector<Program> programs() {
  const std::map<std::string, double> layers = {{"layers", 2}};
  const std::map<std::string, double> experts = {
      {"layers", 2}, {"vocab", 1000}, {"ffn", 1024}, {"experts", 16}, {"picked", 2}};
  const graph::Bindings step = {{"B", 1}, {"T", 1}, {"S", 1024}, {"R", 1}}, prompt = {{"B", 1}, {"T", 256}},
                        pages = {{"B", 3}, {"T", 1}, {"K", 4}, {"R", 3}, {"C", 16}, {"P", 32}},
                        training = {{"B", 2}, {"T", 512}};
  return {{"decode q4_k", "llama", "llama-1b", layers, "step", step, "q4_k"},
          {"experts mxfp4", "qwen3_moe", "config.json", experts, "step_many", pages, "mxfp4"},
          {"prompt q4_0", "llama", "llama-1b", layers, "forward", prompt, "q4_0"},
          {"train f32", "llama", "char-16m", layers, "train", training},
          {"train bf16", "llama", "llama-1b", layers, "train", training, "", Scalar::bf16}};
}

Case case_of(const model::arch::Library& library, const Program& p) {
  const model::arch::FamilyRef family = library.family(p.family);
  const graph::Config config = family->config(p.size, {p.config.begin(), p.config.end()});
  Case c{p.name, {}, {}};
  c.options.symbols = p.symbols;
  c.options.products = p.products;
  if (p.function == "train") {
    const graph::Graph loss = family->function("loss", config);
    c.graph = model::recipe::training_step(graph::bind_symbols(loss, p.symbols), family->parameters(config),
                                           model::recipe::Optimizer(library, {}));
  } else {
    c.graph = family->function(p.function, config);
  }
  if (p.format.empty()) return c;
  for (const graph::ValueId v : c.graph.inputs()) {
    const graph::Node& n = c.graph[v];
    if (n.attributes.role != graph::Role::parameter || n.type.shape.size() < 2) continue;
    c.options.assignments.push_back({graph::FormatAssignment::What::stored, n.attributes.name,
                                     library.formats().get(p.format), FieldSource::fitted});
  }
  return c;
}

class Programs : public testing::TestWithParam<std::string> {};

TEST_P(Programs, HaveTheCommittedKernels) {
  const machine::MachineRef m = machine::find_machine(GetParam());
  const auto library = model::arch::Library::builtin();
  std::string table;
  std::set<std::string> kernels;
  for (const Program& p : programs()) {
    const std::vector<Made> made = make(case_of(*library, p), *m, false);
    double flops = 0, bytes = 0, cycles = 0;
    int64_t scratch = 0;
    for (const Made& one : made) {
      for (const int64_t s : one.chosen.scratch) scratch += s;
      for (const synth::Step& step : one.chosen.steps) {
        flops += step.flops;
        bytes += step.bytes;
        cycles += step.cycles;
        if (const std::string kernel = fmt::format("{} | {}", step.plan, digest(step.kernel));
            kernels.insert(kernel).second)
          table += fmt::format("{} | {}\n", p.name, kernel);
      }
    }
    table += fmt::format("{} | costs | {:.7g} flops, {:.7g} bytes, {:.7g} cycles, {} bytes of scratch\n", p.name, flops,
                         bytes, cycles, scratch);
    keep_text(fmt::format("programs/{}/{}.loop", m->name, p.name), [&] { return text_of(made); });
  }
  expect_text(fmt::format("programs/{}.txt", m->name), table);
}
const std::vector<std::string> kMachines = {"x86-64-v3", "amx", "neon-dotprod", "gfx942", "gfx1100", "sm_80", "sm_90a"};
INSTANTIATE_TEST_SUITE_P(Machines, Programs, testing::ValuesIn(kMachines), [](const auto& of) {
  std::string name = of.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ProgramFiles, BelongToMachines) {
  std::set<std::string> files;
  for (const std::string& name : kMachines) files.insert(name + ".txt");
  expect_no_others("programs", files);
}

}  // namespace
}  // namespace lumen::golden
