// Needs: cpu. What several products of one activation would prepare alike is prepared once: fewer launches, the same
// bits, and scratch that lives from the first to the last of them.
#include <gtest/gtest.h>

#include "number/library/library.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Role;
using graph::ValueId;

constexpr int64_t kRows = 64, kColumns = 256;
constexpr int64_t kResultBytes = kRows * 4;

struct Products {
  graph::Graph g;
  graph::Builder b{g};
  std::map<std::string, Tensor> inputs;
  CompileOptions options;

  ValueId data(const std::string& name, uint64_t seed, Role role = Role::data) {
    const Type type = f32({1, kColumns});
    inputs[name] = random_tensor(type, seed);
    return b.input(name, role, type);
  }
  // A product of x with a weight of the name, which is held in a format whose products round activations to integers.
  void product(ValueId x, const std::string& name) {
    static const FormatLibrary library = FormatLibrary::builtin();
    const ValueId w = b.input(name, Role::parameter, f32({kRows, kColumns}));
    options.assignments.push_back(
        {graph::FormatAssignment::What::stored, name, library.get("q4_0"), FieldSource::fitted});
    g.results.push_back(b.contract(x, w, "mk", "nk", "mn"));
    g.result_names.push_back("y" + name);
  }

  std::shared_ptr<Program> run(Engine& engine) const {
    const auto program = engine.compile(g, options);
    EXPECT_EQ(program->arena_bytes(), engine.arena_bytes(g, options));
    for (const std::string& name : program->input_names()) {
      const Type type = program->input_type(name);
      const auto tensor = std::make_shared<DeviceTensor>(engine.device(), type);
      std::vector<uint8_t> bytes;
      if (type.element.format) {
        const Tensor w = random_tensor(f32({kRows, kColumns}), std::hash<std::string>()(name));
        const std::vector<float> numbers(w.values.begin(), w.values.end());
        bytes = engine.encode(type.element.format, numbers.data(), kRows, kColumns);
      } else {
        bytes = to_bytes(inputs.at(name));
      }
      tensor->upload(bytes.data(), static_cast<int64_t>(bytes.size()));
      program->bind(name, tensor);
    }
    program->run();
    return program;
  }
};

size_t launches(const Program& p) {
  return p.times().size();
}

// One product by itself: how many launches it has, and what of its memory is scratch.
struct Alone {
  size_t launches = 0;
  int64_t scratch = 0;
  std::vector<uint8_t> result;
};
Alone alone(Engine& engine, uint64_t seed, const std::string& weight) {
  Products p;
  p.product(p.data("x", seed), weight);
  const auto program = p.run(engine);
  return {launches(*program), program->arena_bytes() - kResultBytes, bytes_of(program->result("y" + weight))};
}

TEST(Scratch, ThreeProductsOfOneActivationPrepareItOnce) {
  Engine engine(options());
  const Alone one = alone(engine, 1, "a");
  ASSERT_EQ(one.launches, 2U) << "this machine prepares nothing";
  ASSERT_GT(one.scratch, 0);
  Products three;
  const ValueId x = three.data("x", 1);
  for (const char* name : {"a", "b", "c"}) three.product(x, name);
  const auto program = three.run(engine);
  EXPECT_EQ(launches(*program), 2U) << "what they share, and all three at once";
  EXPECT_EQ(program->arena_bytes(), 3 * kResultBytes + one.scratch) << "no more than one of them needs";
  for (const char* name : {"a", "b", "c"})
    EXPECT_EQ(bytes_of(program->result(std::string("y") + name)), alone(engine, 1, name).result) << name;
  program->run();
  EXPECT_EQ(bytes_of(program->result("yc")), alone(engine, 1, "c").result) << "in every run";
}

TEST(Scratch, WhatIsSharedOutlivesWhatOthersNeedInBetween) {
  Engine engine(options());
  const Alone one = alone(engine, 1, "a");
  Products p;
  const ValueId x = p.data("x", 1), z = p.data("z", 2);
  p.product(x, "a");
  p.product(z, "b");
  p.product(x, "c");
  const auto program = p.run(engine);
  EXPECT_EQ(launches(*program), 3U) << "one preparation for two of them, one for the third, and all three at once";
  EXPECT_EQ(program->arena_bytes(), 3 * kResultBytes + 2 * one.scratch);
  EXPECT_EQ(bytes_of(program->result("ya")), one.result);
  EXPECT_EQ(bytes_of(program->result("yb")), alone(engine, 2, "b").result);
  EXPECT_EQ(bytes_of(program->result("yc")), alone(engine, 1, "c").result);
}

// The second one waits for the state, so its scratch lies where the first one's did.
TEST(Scratch, AnActivationThatIsOverwrittenIsPreparedAgain) {
  Engine engine(options());
  const Alone one = alone(engine, 1, "a");
  Products p;
  const ValueId s = p.data("s", 1, Role::state), x = p.data("x", 2);
  p.product(s, "a");
  p.product(p.b.update(s, x), "b");
  const auto program = p.run(engine);
  EXPECT_EQ(launches(*program), 5U) << "two preparations, two products, one update";
  EXPECT_EQ(program->arena_bytes(), 2 * kResultBytes + one.scratch);
  EXPECT_EQ(bytes_of(program->result("ya")), alone(engine, 1, "a").result);
  EXPECT_EQ(bytes_of(program->result("yb")), alone(engine, 2, "b").result);
}

TEST(Scratch, GroupsThatRunAtOnceHaveTheirOwn) {
  Engine engine(options());
  const Alone one = alone(engine, 1, "a");
  Products p;
  p.product(p.data("x", 1), "a");
  p.product(p.data("z", 2), "b");
  const auto program = p.run(engine);
  EXPECT_EQ(launches(*program), 2U);
  EXPECT_EQ(program->arena_bytes(), 2 * (kResultBytes + one.scratch));
  EXPECT_EQ(bytes_of(program->result("ya")), one.result);
  EXPECT_EQ(bytes_of(program->result("yb")), alone(engine, 2, "b").result);
}

}  // namespace
}  // namespace lumen::run
