#include "cases.h"

#include "golden_text.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::golden {
namespace {

using graph::Reduction;
using graph::Role;
using graph::ValueId;
using test::G;

Case finish(std::string name, G t) {
  return {std::move(name), std::move(t.g), {}};
}

ValueId mean_square(G& t, ValueId x, int64_t columns) {
  const ValueId sum = t.b.reduce(t.b.mul(x, x), Reduction::sum, {1});
  return t.b.mul(sum, t.b.scalar(1.0 / static_cast<double>(columns)));
}

ValueId inverse_root(G& t, ValueId x, int64_t columns) {
  const ValueId root = t.b.unary(ScalarOp::sqrt_, t.b.add(mean_square(t, x, columns), t.b.scalar(1e-5)));
  return t.b.div(t.b.scalar(1), root);
}

}  // namespace

FormatRef format_of(const std::string& name) {
  static const FormatLibrary library = [] {
    FormatLibrary l = FormatLibrary::builtin();
    l.add_folder(folder() / "formats");
    return l;
  }();
  return name.empty() || name == "f32" ? nullptr : library.get(name);
}

Case product(std::string name, const Product& p) {
  G t;
  const auto operand = [&](const char* what, const std::vector<int64_t>& shape, bool weight) {
    const Role role = weight ? Role::parameter : Role::data;
    if (!p.both.empty()) return t.decoded(t.in(what, shape, format_of(p.both), role));
    if (const FormatRef f = weight ? format_of(p.format) : nullptr) return t.decoded(t.in(what, shape, f, role));
    return t.in(what, shape, p.scalar, role);
  };
  switch (p.order) {
    case Order::forward:
      t.out(t.b.contract(operand("x", {p.m, p.k}, false), operand("w", {p.n, p.k}, true), "mk", "nk", "mn"));
      break;
    case Order::dx:
      t.out(t.b.contract(operand("dy", {p.m, p.n}, false), operand("w", {p.n, p.k}, true), "mn", "nk", "mk"));
      break;
    case Order::dw:
      t.out(t.b.contract(operand("dy", {p.m, p.n}, false), operand("x", {p.m, p.k}, false), "mn", "mk", "nk"));
      break;
  }
  Case c = finish(std::move(name), std::move(t));
  c.options.products = p.products;
  c.options.exact = p.exact;
  return c;
}

Case encoding(std::string name, const std::string& format, int64_t rows, int64_t columns) {
  G t;
  t.out(t.b.cast(t.in("x", {rows, columns}), {Scalar::f32, format_of(format)}));
  return finish(std::move(name), std::move(t));
}

Case decoding(std::string name, const std::string& format, int64_t rows, int64_t columns) {
  G t;
  t.out(t.decoded(t.in("x", {rows, columns}, format_of(format))));
  return finish(std::move(name), std::move(t));
}

Case elementwise(std::string name, int64_t rows, int64_t columns) {
  G t;
  const ValueId gate = t.in("gate", {rows, columns}), up = t.in("up", {rows, columns});
  const ValueId power = t.b.unary(ScalarOp::exp_, t.b.unary(ScalarOp::neg_, gate));
  t.out(t.b.mul(t.b.div(gate, t.b.add(power, t.b.scalar(1))), up));
  return finish(std::move(name), std::move(t));
}

Case softmax(std::string name, int64_t rows, int64_t columns) {
  G t;
  const ValueId x = t.in("x", {rows, columns});
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(x, t.b.reduce(x, Reduction::max, {1})));
  t.out(t.b.div(e, t.b.reduce(e, Reduction::sum, {1})));
  return finish(std::move(name), std::move(t));
}

Case norm(std::string name, int64_t rows, int64_t columns) {
  G t;
  const ValueId x = t.in("x", {rows, columns}), w = t.in("w", {columns}, Scalar::f32, Role::parameter);
  t.out(t.b.mul(t.b.mul(x, inverse_root(t, x, columns)), w));
  return finish(std::move(name), std::move(t));
}

Case norm_gradient(std::string name, int64_t rows, int64_t columns) {
  G t;
  const ValueId x = t.in("x", {rows, columns}), w = t.in("w", {columns}), dy = t.in("dy", {rows, columns});
  const ValueId inverse = inverse_root(t, x, columns), normed = t.b.mul(x, inverse);
  t.out(t.b.mul(normed, w));
  t.out(t.b.reduce(t.b.mul(dy, normed), Reduction::sum, {0}));
  const ValueId dot = t.b.reduce(t.b.mul(t.b.mul(dy, w), normed), Reduction::sum, {1});
  const ValueId share = t.b.mul(dot, t.b.scalar(1.0 / static_cast<double>(columns)));
  t.out(t.b.mul(t.b.sub(t.b.mul(dy, w), t.b.mul(normed, share)), inverse));
  return finish(std::move(name), std::move(t));
}

Case cross_entropy(std::string name, int64_t rows, int64_t columns) {
  G t;
  const ValueId x = t.in("x", {rows, columns}), target = t.in("target", {rows, 1}, Scalar::i32);
  const ValueId top = t.b.reduce(x, Reduction::max, {1});
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(x, top));
  const ValueId sum = t.b.reduce(e, Reduction::sum, {1});
  const ValueId is_target = t.b.binary(ScalarOp::eq_, t.b.iota(G::type({rows, columns}, Scalar::i32), 1), target);
  const ValueId picked = t.b.reduce(t.b.select(is_target, x, t.b.scalar(0)), Reduction::sum, {1});
  t.out(t.b.sub(t.b.add(t.b.unary(ScalarOp::log_, sum), top), picked));
  t.out(t.b.sub(t.b.div(e, sum), t.b.select(is_target, t.b.scalar(1), t.b.scalar(0))));
  return finish(std::move(name), std::move(t));
}

Case column_sums(std::string name, int64_t rows, int64_t columns) {
  G t;
  const ValueId x = t.in("x", {rows, columns}), y = t.in("y", {rows, columns});
  t.out(t.b.reduce(t.b.mul(x, y), Reduction::sum, {0}));
  return finish(std::move(name), std::move(t));
}

Case total(std::string name, int64_t count) {
  G t;
  const ValueId x = t.in("x", {count});
  t.out(t.b.reduce(t.b.mul(x, x), Reduction::sum, {0}));
  return finish(std::move(name), std::move(t));
}

Case dropout(std::string name, int64_t rows, int64_t columns) {
  G t;
  const ValueId x = t.in("x", {rows, columns}), seed = t.in("seed", {}, Scalar::u32);
  const ValueId kept = t.b.binary(ScalarOp::lt_, t.b.random(seed, 1, G::shape({rows, columns})), t.b.scalar(0.9));
  t.out(t.b.select(kept, t.b.mul(x, t.b.scalar(1 / 0.9)), t.b.scalar(0)));
  return finish(std::move(name), std::move(t));
}

Case gather(std::string name, const std::string& format, int64_t rows, int64_t columns, int64_t picked) {
  G t;
  const FormatRef f = format_of(format);
  const ValueId table = f ? t.decoded(t.in("table", {rows, columns}, f, Role::parameter))
                          : t.in("table", {rows, columns}, Scalar::f32, Role::parameter);
  t.out(t.b.gather(table, t.in("index", {picked}, Scalar::i32)));
  return finish(std::move(name), std::move(t));
}

Case scatter(std::string name, int64_t rows, int64_t columns, int64_t picked) {
  G t;
  const ValueId value = t.in("value", {picked, columns}), index = t.in("index", {picked}, Scalar::i32);
  t.out(t.b.scatter_add(value, index, graph::Dim(rows)));
  return finish(std::move(name), std::move(t));
}

Case transposition(std::string name, int64_t rows, int64_t columns) {
  G t;
  t.out(t.b.permute(t.in("x", {rows, columns}), {1, 0}));
  return finish(std::move(name), std::move(t));
}

Case concatenation(std::string name, int64_t rows, int64_t columns) {
  G t;
  t.out(t.b.concat({t.in("x", {rows, columns}), t.in("y", {rows, columns / 2})}, 1));
  return finish(std::move(name), std::move(t));
}

Case cache_update(std::string name, const std::string& format, int64_t length, int64_t columns) {
  G t;
  const FormatRef f = format_of(format);
  const ValueId cache = f ? t.in("cache", {2, length, columns}, f, Role::state)
                          : t.in("cache", {2, length, columns}, Scalar::f32, Role::state);
  ValueId x = t.in("x", {2, 1, columns});
  if (f) x = t.b.cast(x, {Scalar::f32, f});
  const ValueId start = t.in("start", {}, Scalar::i32), zero = t.b.scalar(0, Scalar::i32);
  t.out(t.b.update(cache, x, {zero, start, zero}));
  return finish(std::move(name), std::move(t));
}

}  // namespace lumen::golden
