// needs: none. The grammar: precedence, reductions, statements, formats, models, bounds.
#include "lang/parser.h"

#include <gtest/gtest.h>

#include "equal_tree.h"

namespace lumen::lang {
namespace {

SourceRef source(const std::string& text) {
  return std::make_shared<Source>(Source{"test.lum", text});
}

// The tree with all brackets written, to see how it was grouped.
std::string grouped(const Expr& e) {
  std::string out;
  switch (e.kind) {
    case ExprKind::binary:
      return "(" + grouped(*e.args[0]) + " " + e.text + " " + grouped(*e.args[1]) + ")";
    case ExprKind::unary:
      return "(" + e.text + " " + grouped(*e.args[0]) + ")";
    case ExprKind::reduce:
      for (const std::string& v : e.vars) out += (out.empty() ? "" : ",") + v;
      return "(" + e.text + "{" + out + "} " + grouped(*e.args[0]) + ")";
    case ExprKind::choose:
      return "(" + grouped(*e.args[0]) + " ? " + grouped(*e.args[1]) + " : " + grouped(*e.args[2]) + ")";
    case ExprKind::call:
    case ExprKind::index:
      for (size_t i = e.kind == ExprKind::index; i < e.args.size(); ++i)
        out += (out.empty() ? "" : ", ") + grouped(*e.args[i]);
      return e.kind == ExprKind::call ? e.text + "(" + out + ")" : grouped(*e.args[0]) + "[" + out + "]";
    default:
      return print_expression(e);
  }
}
std::string grouped(const std::string& text) {
  return grouped(*parse_expression(source(text)));
}

std::string refusal(const std::string& text) {
  try {
    parse_file(source(text));
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Parser, Precedence) {
  EXPECT_EQ(grouped("a + b * c - d"), "((a + (b * c)) - d)");
  EXPECT_EQ(grouped("-x ** 2"), "(- (x ** 2))");
  EXPECT_EQ(grouped("2 ** -x ** 3"), "(2 ** (- (x ** 3)))");
  EXPECT_EQ(grouped("a ** b ** c"), "(a ** (b ** c))");
  EXPECT_EQ(grouped("a or b and c < d | e ^ f & g << h"), "(a or (b and (c < (d | (e ^ (f & (g << h)))))))");
  EXPECT_EQ(grouped("not a and b"), "((not a) and b)");
  EXPECT_EQ(grouped("if a then b else c + 1"), "(a ? b : (c + 1))");
  EXPECT_EQ(grouped("a < b or c < d"), "((a < b) or (c < d))");
  EXPECT_EQ(grouped("cfg.a.b * 2"), "(cfg.a.b * 2)");
}

TEST(Parser, ComparisonsDoNotChain) {
  EXPECT_NE(refusal("fn f(a, b) = a < b < 3").find("comparisons cannot be chained"), std::string::npos);
}

TEST(Parser, Reductions) {
  EXPECT_EQ(grouped("sum(k) x[m, k] * w[n, k] + b"), "((sum{k} (x[m, k] * w[n, k])) + b)");
  EXPECT_EQ(grouped("max(a, b)"), "max(a, b)");
  EXPECT_EQ(grouped("max(a, b) - c"), "(max(a, b) - c)");
  EXPECT_EQ(grouped("max(i, j) (x[i] - y[j])"), "(max{i,j} (x[i] - y[j]))");
  EXPECT_EQ(grouped("x[argmax(j) abs(x[j])] / -8"), "(x[(argmax{j} abs(x[j]))] / (- 8))");
  EXPECT_EQ(grouped("sum(x, -1)"), "sum(x, (- 1))") << "an axis is not an index";
  EXPECT_EQ(grouped("mean(x)"), "mean(x)");
  const ExprPtr e = parse_expression(source("sum(j in 0..n * 2, k) x[j, k]"));
  ASSERT_EQ(e->kind, ExprKind::reduce);
  EXPECT_EQ(print_expression(*e->ranges[0].second), "n * 2");
  EXPECT_EQ(e->ranges[1].first, nullptr);
}

TEST(Parser, Subscripts) {
  EXPECT_EQ(print_expression(*parse_expression(source("x[a:b, :, 3:, :4, i]"))), "x[a:b, :, 3:, :4, i]");
}

TEST(Parser, LinesEndStatementsUnlessSomethingIsOpen) {
  const File f = parse_file(source("fn f(a, b) {\n  let x = a +\n    b; let y = g(a,\n    b)\n  x * y\n}\n"));
  ASSERT_EQ(f.functions[0].body.size(), 3u);
  EXPECT_EQ(f.functions[0].body[2].kind, StmtKind::result);
}

TEST(Parser, Statements) {
  const File f = parse_file(source(R"(
fn search(x, n, L) {
  var best = 0.0
  var T[32] = 1
  for i in 0..n step 2 {
    if x[i] > best and i < 3 { best = x[i] }
    else if x[i] < 0 { L[i] = 1 } else { T[i] = 2 }
  }
  let (a, b) = g(best, n)
  a, b = g(a, b)
}
)"));
  const auto& body = f.functions[0].body;
  ASSERT_EQ(body.size(), 5u);
  EXPECT_EQ(body[1].kind, StmtKind::var);
  EXPECT_NE(body[1].extent, nullptr);
  EXPECT_NE(body[2].step, nullptr);
  EXPECT_EQ(body[2].body[0].otherwise[0].kind, StmtKind::branch);
  EXPECT_EQ(body[2].body[0].otherwise[0].body[0].kind, StmtKind::assign) << "L is a parameter";
  EXPECT_EQ(body[3].names.size(), 2u);
}

TEST(Parser, IndexNotationDefinesUnboundNames) {
  const File f = parse_file(
      source("fn linear(x: f32[M, K], w: f32[N, K]) -> f32[M, N] {\n  y[m, n] = sum(k) x[m, k] * w[n, k]\n  y\n}"));
  EXPECT_EQ(f.functions[0].body[0].kind, StmtKind::define);
  EXPECT_EQ(f.functions[0].results[0].dims.size(), 2u);
}

TEST(Parser, OneLineOfIndexNotationIsABody) {
  const File a = parse_file(source("fn f(x: f32[M, K]) -> f32[K, M]\n  y[k, m] = x[m, k]\n\nfn g(x) = x\n"));
  const File b =
      parse_file(source("fn f(x: f32[M, K]) -> f32[K, M] {\n  y[k, m] = x[m, k]\n  return y\n}\nfn g(x) = x\n"));
  EXPECT_TRUE(equal(a, b));
}

TEST(Parser, FormatWithEveryPart) {
  const File f = parse_file(source(R"(
table values : f32 = [-1.0, 0,
                      1.0]
format q(bits, group = 32) : block group, gguf 2, tile 128 (64 * 2), safetensors "X", doc "text" {
  d : f16                     # a comment
  row s : float<4, 3, 7, fn>
  sc : u6[8] at [0..3] bits 0..5 byte 4 bit 0 (4 : 8), [4..7] bits 4..5 byte off + 1 (2 : 8, 2 : 16)
  qs : u4[32] at halves byte 2
  q : i<bits>[group]

  decode(i) = d * (qs[i] - 8)
  fit row(x) { s = max(j) abs(x[j]) }
  fit(x)     { let s = x[argmax(j) abs(x[j])] / -8;  d = s }
  code(v, i) = clamp(trunc(v * recip(s) + 8.5), 0, 15)
}
format q5 : doc "five" = q(bits = 5, group = 32)
)"));
  ASSERT_EQ(f.formats.size(), 1u);
  const FormatDecl& q = f.formats[0];
  EXPECT_EQ(q.attributes[2].values.size(), 2u);
  ASSERT_EQ(q.fields.size(), 5u);
  EXPECT_EQ(q.fields[1].level, "row");
  EXPECT_EQ(q.fields[1].type.params.size(), 4u);
  ASSERT_EQ(q.fields[2].layout.size(), 2u);
  EXPECT_EQ(q.fields[2].layout[1].modes.size(), 2u);
  EXPECT_EQ(print_expression(*q.fields[2].layout[1].byte), "off + 1");
  EXPECT_EQ(q.fields[3].layout[0].shorthand, "halves");
  ASSERT_EQ(q.routines.size(), 4u);
  EXPECT_EQ(q.routines[1].name, "fit row");
  EXPECT_EQ(q.routines[2].body[1].kind, StmtKind::assign);
  EXPECT_EQ(q.routines[3].params.size(), 2u);
  ASSERT_EQ(f.aliases.size(), 1u);
  EXPECT_EQ(f.aliases[0].value->names[0], "bits");
}

TEST(Parser, ModelWithEveryPart) {
  const File f = parse_file(source(R"(
model m(cfg) : gguf "m", hf "MForCausalLM" {
  config {
    hidden : i32 = 128, gguf "{a}.embedding_length",
                        hf "hidden_size"
    eps : f32 = 1e-5
  }
  size tiny-1.1b { hidden = 2048; eps = 1e-6 }
  size "odd name" { hidden = 64, eps = 1.0 }
  param embed : f32[cfg.vocab, cfg.hidden], role embedding, init normal 0.02
  layers cfg.layers {
    param wq : f32[cfg.heads * cfg.head_dim, cfg.hidden], gguf "blk.{i}.attn_q.weight"
  }
  fn forward(tokens: i32[B, T], k: state f32[cfg.layers, S]) -> f32[B, T, cfg.vocab], f32[] {
    let x = embed[tokens]
    for l in layers { x = block(l.wq, x) }
    return x, mean(x)
  }
}
)"));
  ASSERT_EQ(f.models.size(), 1u);
  const ModelDecl& m = f.models[0];
  EXPECT_EQ(m.config[0].attributes.size(), 2u);
  EXPECT_EQ(m.sizes[0].name, "tiny-1.1b");
  EXPECT_EQ(m.sizes[1].name, "odd name");
  EXPECT_EQ(m.layer_params.size(), 1u);
  EXPECT_TRUE(m.functions[0].params[1].type->is_state);
  EXPECT_EQ(m.functions[0].results.size(), 2u);
  EXPECT_EQ(m.functions[0].body[1].to, nullptr) << "a loop over layers has no end";
}

TEST(Parser, PlacesCoverWhatTheyName) {
  const SourceRef s = source("fn f(x: f32[N]) = x + (x * 2)\n");
  const File f = parse_file(s);
  const Place p = f.functions[0].body[0].values[0]->args[1]->place;
  EXPECT_EQ(s->text.substr(p.begin, p.end - p.begin), "x * 2");
}

TEST(Parser, DiagnosticsHavePlaceLineCaretAndHint) {
  EXPECT_EQ(refusal("format q : blokc 32 {\n}\n"),
            "test.lum:1:12: error: unknown attribute 'blokc' of a format\n"
            "    format q : blokc 32 {\n"
            "               ^~~~~~~~\n"
            "  hint: did you mean 'block'?");
  EXPECT_EQ(refusal("fn f(x) = x + \n"),
            "test.lum:1:14: error: expected a value, found the end of the text\n"
            "    fn f(x) = x + \n"
            "                 ^");
}

TEST(Parser, NothingFollowsAResult) {
  EXPECT_NE(refusal("fn f(x) {\n x\n let y = x\n y\n}").find("nothing can follow a result"), std::string::npos);
}

TEST(Parser, DepthIsBounded) {
  const std::string open(100000, '('), close(100000, ')');
  EXPECT_NE(refusal("fn f(x) = " + open + "x" + close).find("nested more than 200 deep"), std::string::npos);
  EXPECT_NE(refusal("fn f(x) = " + std::string(100000, '-') + "x").find("nested more than 200 deep"),
            std::string::npos);
  std::string chain = "fn f(x) = x", calls = "fn f(x) = x", powers = "fn f(x) = x";
  for (int i = 0; i < 50000; ++i) {
    chain += " + x";
    calls += ".m";
    powers += " ** x";
  }
  EXPECT_NE(refusal(chain).find("more than 400 levels"), std::string::npos);
  EXPECT_NE(refusal(calls).find("more than 400 levels"), std::string::npos);
  EXPECT_NE(refusal(powers).find("nested more than 200 deep"), std::string::npos);
  std::string branches = "fn f(x) { if x { x }";
  for (int i = 0; i < 5000; ++i) branches += " else if x { x }";
  EXPECT_NE(refusal(branches + " }").find("nested more than 200 deep"), std::string::npos);
}

}  // namespace
}  // namespace lumen::lang
