// needs: none. Every family against the well-known implementation: logits of whole texts, of texts read in pieces with
// a cache, of many texts at once, and gradients. The fixtures and the script that makes them: families_reference.py.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "graph/grad/reverse.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/checkpoint/write.h"
#include "model/infer/recurrent/recurrent.h"
#include "model/infer/session/session_many.h"
#include "tests/model/families/family_case.h"

namespace lumen::model {
namespace {

std::vector<std::string> cases() {
  return names_in(kFamilies);
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, WholeTexts) {
  const Expected e(GetParam());
  const arch::Model m = read_hf(test_library(), kFamilies / GetParam());
  const infer::LoadedModel loaded(engine(), m);
  const auto logits = forward(m, loaded, e, e.batch + 1, e.length);
  for (int64_t r = 0; r < e.batch + 1; ++r) EXPECT_LT(e.off_text(logits, r, r % e.batch), kLogitBound) << "text " << r;
}

TEST_P(Families, PiecesWithACache) {
  const Expected e(GetParam());
  const arch::Model m = read_hf(test_library(), kFamilies / GetParam());
  const infer::LoadedModel loaded(engine(), m);
  for (const int64_t chunk : {16, 7}) {
    infer::Session s(loaded, {.context = e.length, .chunk = chunk, .exact = true});
    int64_t done = 0;
    for (const int64_t count : {int64_t{11}, int64_t{1}, int64_t{1}, int64_t{7}, e.length - 20}) {
      const auto got = s.feed(e.text(1).subspan(static_cast<size_t>(done), static_cast<size_t>(count)));
      done += count;
      EXPECT_LT(e.off(got, 1, done - 1), kLogitBound) << "chunks of " << chunk << ", position " << done - 1;
    }
  }
}

TEST_P(Families, TextsTogether) {
  const Expected e(GetParam());
  const arch::Model m = read_hf(test_library(), kFamilies / GetParam());
  const infer::LoadedModel loaded(engine(), m);
  infer::ManySession s(loaded, {.context = 64, .chunk = 16, .exact = true}, {.longest = e.length});
  const int a = s.open(), b = s.open();
  const std::vector<infer::ManySession::Part> begin = {{a, e.text(0).first(9)}, {b, e.text(1).first(17)}},
                                              next = {{a, e.text(0).subspan(9, 1)}, {b, e.text(1).subspan(17)}};
  const auto first = s.feed(begin), then = s.feed(next);
  EXPECT_LT(e.off(first[0], 0, 8), kLogitBound);
  EXPECT_LT(e.off(first[1], 1, 16), kLogitBound);
  EXPECT_LT(e.off(then[0], 0, 9), kLogitBound);
  EXPECT_LT(e.off(then[1], 1, e.length - 1), kLogitBound);
}

class FamilyGradients : public Families {};

std::vector<std::string> cases_with_gradients() {
  std::vector<std::string> names = cases();
  std::erase_if(names, [](const std::string& name) {
    return read_file(kFamilies / name / "expected.safetensors").find("gradient.") == std::string::npos;
  });
  return names;
}

TEST_P(FamilyGradients, OfTheLoss) {
  const Expected e(GetParam());
  const arch::Model m = read_hf(test_library(), kFamilies / GetParam());
  std::vector<std::string> wanted;
  for (const file::StoredTensor& t : e.file.tensors())
    if (t.name.starts_with("gradient.")) wanted.push_back(t.name.substr(9));
  graph::Graph g = m.family->function("loss", m.config);
  std::vector<const arch::Parameter*> parameters;
  std::vector<graph::ValueId> inputs;
  for (const std::string& name : wanted) {
    const auto p = std::find_if(m.parameters.begin(), m.parameters.end(), [&](const auto& q) { return q.hf == name; });
    ASSERT_NE(p, m.parameters.end()) << name;
    parameters.push_back(&*p);
    inputs.push_back(g.find_input(p->name));
  }
  std::vector<std::string> results;
  for (const arch::Parameter* p : parameters) results.push_back("gradient." + p->name);
  for (const graph::ValueId d : graph::differentiate(g, g.results[0], inputs)) g.results.push_back(d);
  g.result_names.insert(g.result_names.end(), results.begin(), results.end());
  run::CompileOptions options;
  options.assignments = stored_formats(m);
  options.symbols = {{"B", e.batch}, {"T", e.length - 1}};
  options.exact = true;
  const auto program = engine().compile(g, options);
  std::vector<int32_t> ids, targets;
  for (int64_t r = 0; r < e.batch; ++r) {
    const auto text = e.text(r);
    ids.insert(ids.end(), text.begin(), text.end() - 1);
    targets.insert(targets.end(), text.begin() + 1, text.end());
  }
  const infer::LoadedModel loaded(engine(), m);
  for (const std::string& name : program->input_names()) {
    program->bind(name, name == "tokens"    ? tensor_of({e.batch, e.length - 1}, ids)
                        : name == "targets" ? tensor_of({e.batch, e.length - 1}, targets)
                                            : loaded.weights().at(name));
  }
  program->run();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const arch::Parameter& p = *parameters[i];
    const file::StoredTensor& stored = e.file.get("gradient." + wanted[i]);
    graph::Shape shape;
    for (const int64_t d : stored.shape) shape.emplace_back(d);
    arch::Weight want = arch::f32_weight(shape, numbers<float>(stored));
    if (p.hf_transposed) want = transposed(want);
    if (!p.hf_shape.empty()) want.type.shape = p.shape;
    to_own_order(want, p);
    std::vector<float> got(static_cast<size_t>(p.count()));
    program->result(results[i])->download(got.data(), static_cast<int64_t>(got.size() * sizeof(float)));
    double most = 0, size = 0;
    for (size_t k = 0; k < got.size(); ++k) {
      most = std::max(most, std::abs(static_cast<double>(got[k]) - want.f32()[k]));
      size = std::max(size, std::abs(static_cast<double>(want.f32()[k])));
    }
    EXPECT_GT(size, 1e-4) << wanted[i];
    EXPECT_LT(most / size, 1e-3) << wanted[i];
  }
}

// Attention is one kernel that keeps no scores, whatever window, limit or scale the family has.
TEST_P(Families, NoScoresInMemory) {
  const arch::Model m = read_hf(test_library(), kFamilies / GetParam());
  run::CompileOptions options;
  options.assignments = stored_formats(m);
  options.symbols = {{"B", 2}, {"T", 23}};
  const auto program = engine().compile(m.family->function("forward", m.config), options);
  const std::string text = program->explain();
  int64_t attends = 0;
  for (size_t at = text.find(" attend "); at != std::string::npos; at = text.find(" attend ", at + 1))
    attends +=
        std::stoll(text.substr(text.rfind('\n', at) + 1));  // the line begins with how often the kernel is called
  int64_t layers = m.integer("layers");
  if (!infer::recurrent_states(m.family->function("step", m.config)).empty())  // some layers, whose keys have a matrix
    layers = std::ranges::count_if(m.parameters, [](const arch::Parameter& p) { return p.name.ends_with(".wk"); });
  EXPECT_GE(attends, layers) << text;
}

// Folders hold no rounded weights.
arch::Model in_floats(const arch::Model& model) {
  arch::Model out = model;
  for (auto& [name, w] : out.weights)
    if (is_rounded(w)) w = decoded(w);
  return out;
}

// Written as GGUF and as a folder, and read again, a model computes the same.
TEST_P(Families, ThroughBothKindsOfFiles) {
  const Expected e(GetParam());
  const arch::Model m = read_hf(test_library(), kFamilies / GetParam());
  const TestFolder folder;
  write_gguf(m, folder / "m.gguf");
  const arch::Model g = read_gguf(test_library(), folder / "m.gguf");
  EXPECT_EQ(g.family->name(), m.family->name());
  EXPECT_EQ(g.config, m.config);
  const arch::Model plain = in_floats(m);
  write_hf(plain, folder / "hf");
  const arch::Model h = read_hf(test_library(), folder / "hf");
  // Of a model that sees pictures the folder has the text part alone, which may be another family.
  if (h.family->name() == m.family->name())
    EXPECT_EQ(h.config, m.config);
  else
    EXPECT_FALSE(m.family->has_function("step_seeing") == h.family->has_function("step_seeing"));
  for (const auto& [name, w] : m.weights) {
    EXPECT_EQ(h.weights.at(name).bytes, plain.weights.at(name).bytes) << name;
    if (!m.find(name)->gguf_minus_exp) {
      EXPECT_EQ(g.weights.at(name).bytes, w.bytes) << name;
      continue;
    }
    for (size_t i = 0; i < w.f32().size(); ++i) EXPECT_NEAR(g.weights.at(name).f32()[i], w.f32()[i], 1e-6) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(cases()), [](const auto& i) { return i.param; });

INSTANTIATE_TEST_SUITE_P(All, FamilyGradients, testing::ValuesIn(cases_with_gradients()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace lumen::model
