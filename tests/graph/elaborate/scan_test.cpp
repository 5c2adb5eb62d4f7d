// Needs: cpu. scan(...) in the language: what it becomes, and what is refused with its place.
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/elaborate/elaborate.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "lang/parser.h"

namespace lumen::graph {
namespace {

constexpr const char* kStep =
    "fn step(h: f32[B, D], x: f32[B, D], w: f32[D]) -> f32[B, D], f32[B] {\n"
    "  let next = h * w + x\n"
    "  return next, sum(next, -1)[:, 0]\n"
    "}\n"
    "fn add(h: f32[B, D], x: f32[B, D], by: f32 = 1.0) = concat(h, x * by)\n"
    "fn last(h: f32[B, D], x: f32[B, C, D], w: f32[D]) = h * w + x[:, -1, :]\n"
    "fn turned(h: f32[B, D], x: f32[B, C, D], w: f32[D]) {\n"
    "  return h * w, permute(sum(x, -1)[:, :, 0], [1, 0])\n"
    "}\n"
    "fn chunk(h: f32[B, D], x: f32[B, C, D], w: f32[D]) {\n"
    "  return h * w, sum(x, -1)[:, :, 0]\n"
    "}\n";

Graph scan_function(const std::string& text) {
  const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"test.lum", kStep + text}));
  Scope scope;
  scope.files = {&file};
  return elaborate_function(scope, file.functions.back());
}

std::string refusal_of(const std::string& body) {
  try {
    scan_function("fn f(h: f32[B, D], x: f32[B, T, D], w: f32[D]) {\n  " + body + "\n  return h\n}\n");
  } catch (const Error& e) {
    return e.what();
  }
  return "none";
}

TEST(ScanText, LengthsMayBeSymbols) {
  const Graph g = scan_function(
      "fn f(h: f32[B, D], x: f32[B, T, D], w: f32[D]) -> f32[B, D], f32[B, T] {\n"
      "  let (last, all) = scan(step, [h], [x], w, axis = 1, reverse = 1)\n"
      "  return last, all\n"
      "}\n");
  EXPECT_EQ(verify(g), "");
  const std::string text = print(g);
  EXPECT_NE(text.find("@step carries=1 sequences=1 reverse"), std::string::npos) << text;
  EXPECT_EQ(print(*parse(std::make_shared<Source>(Source{"printed", text}), {}).back()), text);
}

TEST(ScanText, ChunksHalve) {
  const Graph g = scan_function(
      "fn f(h: f32[B, D], x: f32[B, T, D], w: f32[D]) {\n"
      "  let (last, all) = scan(step, [h], [x], w, axis = 1, chunk = chunk, most = 32)\n"
      "  return last, all\n"
      "}\n");
  EXPECT_EQ(verify(g), "");
  const std::string text = print(g);
  for (const char* chunk : {"= chunk %4 @chunk.32 ", "= chunk %5 @chunk.2.16 ", "= chunk %6 @chunk.3.8 "})
    EXPECT_NE(text.find(chunk), std::string::npos) << chunk << "\n" << text;
  EXPECT_EQ(print(*parse(std::make_shared<Source>(Source{"printed", text}), {}).back()), text);
}

TEST(ScanText, MistakesAreToldWithTheirPlace) {
  const auto expect = [](const std::string& body, const std::string& message) {
    const std::string told = refusal_of(body);
    EXPECT_NE(told.find(message), std::string::npos) << body << "\n" << told;
  };
  expect("let a = scan(step, [h], [x], w, axis = 1, steps = 3)", "'scan' has no parameter 'steps'");
  expect("let a = scan(stop, [h], [x], w, axis = 1)", "unknown function 'stop'");
  expect("let a = scan(step, h, [x], w, axis = 1)", "the carries of a scan are in brackets");
  expect("let a = scan(step, [h], [], w, axis = 1)", "no number of steps");
  expect("let a = scan(step, [h], [x], axis = 1)", "'step' takes 3 arguments, the scan has 2");
  expect("let a = scan(step, [h], [x], w)", "argument 'x' of 'step'");
  expect("let a = scan(add, [h], [x], axis = 1)", "this carry is f32[B, D] before a step of 'add' and f32[B, 2 * D]");
  expect("let a = scan(step, [h], [x], w, axis = 7)", "axis 7 does not exist");
  expect("let a = scan(step, [h], [sum(w)], w)", "a single number is no sequence");
  expect("let a = scan(step, [h], [x, w], axis = 0)", "this sequence has D steps, the first has B");
  expect("let a = scan(step, [h], [x], w, axis = 1, most = 16)", "no 'chunk' is given");
  expect("let a = scan(step, [h], [x], w, axis = 1, chunk = 3)", "'chunk' is the name of the function");
  expect("let a = scan(step, [h], [x], w, axis = 1, chunk = chunks)", "unknown function 'chunks'");
  expect("let a = scan(step, [h], [x], w, axis = 1, chunk = chunk, most = 48)", "steps of a chunk is 48");
  expect("let a = scan(step, [h], [x], w, axis = 1, chunk = chunk, reverse = 1)", "a scan in reverse has no chunks");
  expect("let a = scan(step, [h], [x], w, axis = 1, chunk = last)", "'last' gives 1 values, a step of 'step' gives 2");
  expect("let a = scan(step, [h], [x], w, axis = 1, chunk = turned)",
         "value 2 of 'turned' is f32[64, B] for 64 steps, and should be f32[B, 64]");
}

}  // namespace
}  // namespace lumen::graph
