// Index notation; see indexed.h.
#include "graph/elaborate/indexed.h"

#include <algorithm>
#include <cctype>

#include "lang/parser.h"

namespace lumen::graph {

using lang::Expr;
using lang::ExprKind;

namespace {

bool is_among(const std::vector<int>& list, int k) {
  return std::find(list.begin(), list.end(), k) != list.end();
}

}  // namespace

int Indexed::find_index(const std::string& name) const {
  for (size_t i = indices_.size(); i-- > 0;)
    if (indices_[i].name == name) return i;
  return -1;
}

int Indexed::add_index(const std::string& name, const Place& place) {
  if (find_index(name) >= 0)
    throw error_at(place, fmt::format("index '{}' is in use already", name), "give the inner index another name");
  Index index;
  index.name = name;
  const auto taken = [&](char c) {
    return std::any_of(indices_.begin(), indices_.end(), [&](const Index& i) { return i.letter == c; });
  };
  char letter = static_cast<char>(std::tolower(static_cast<unsigned char>(name[0])));
  if (letter < 'a' || letter > 'z') letter = 'a';
  for (int tries = 0; tries < 26 && taken(letter); ++tries)
    letter = letter == 'z' ? 'a' : static_cast<char>(letter + 1);
  if (taken(letter)) throw error_at(place, "more than 26 indices");
  index.letter = letter;
  indices_.push_back(std::move(index));
  return indices_.size() - 1;
}

bool Indexed::mentions(const Expr& e, const std::vector<int>& which) const {
  if (e.kind == ExprKind::name) return std::find(which.begin(), which.end(), find_index(e.text)) != which.end();
  for (const auto& a : e.args)
    if (a && mentions(*a, which)) return true;
  for (const auto& [from, to] : e.ranges)
    if ((from && mentions(*from, which)) || (to && mentions(*to, which))) return true;
  return false;
}

bool Indexed::mentions(const Expr& e) const {
  std::vector<int> all;
  for (size_t i = 0; i < indices_.size(); ++i) all.push_back(i);
  return mentions(e, all) || e.kind == ExprKind::reduce;
}

void Indexed::set_extent(int index, const Dim& d, const Place& place) {
  Index& i = indices_[index];
  if (i.ranged) {
    const int64_t end = i.first + i.extent->number();
    if (d.is_number() && d.coefficient < end)
      throw error_at(place, fmt::format("index '{}' runs to {}, this axis has extent {}", i.name, end, written(d)));
    return;
  }
  if (i.extent && *i.extent != d)
    throw error_at(place, fmt::format("index '{}' is {} here and {} elsewhere", i.name, written(d), written(*i.extent)),
                   "one index has one extent: check the order of the subscripts");
  i.extent = d;
}

// Collects extents of indices that are whole subscripts of named tensors, before any node is built.
void Indexed::learn_extents(const Expr& e) {
  e_.session_.spend(e.place);
  if (e.kind == ExprKind::index && (e.args[0]->kind == ExprKind::name || e.args[0]->kind == ExprKind::member) &&
      find_index(e.args[0]->text) < 0) {
    const Value base = e_.expression(*e.args[0]);
    if (base.is_tensor())
      for (size_t i = 1; i < e.args.size() && i <= base.shape.size(); ++i) {
        const Expr& s = *e.args[i];
        if (const int index = s.kind == ExprKind::name ? find_index(s.text) : -1; index >= 0)
          set_extent(index, base.shape[i - 1], s.place);
      }
  }
  for (const auto& a : e.args)
    if (a) learn_extents(*a);
}

// ---- arranging axes

Indexed::Item Indexed::loose(const Item& i, const Place& place) {
  if (i.loose) return i;
  Item out = i;
  out.loose = true;
  if (i.over.empty() && !i.value.is_tensor()) return out;
  Shape shape;
  const Value v = Value::of_node(e_.graph_, e_.node_of(i.value, place));
  const size_t shift = indices_.size() - std::min(indices_.size(), v.shape.size());
  for (int k : i.over) shape.push_back(v.shape[k - shift]);
  out.value = e_.reshape(v, std::move(shape), place);
  return out;
}

Value Indexed::aligned(const Item& i, const Place& place) {
  if (!i.loose || i.over.empty()) return i.value;
  std::vector<int> order(i.over.size());
  for (size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::sort(order.begin(), order.end(), [&](int a, int b) { return i.over[a] < i.over[b]; });
  Value v = Value::of_node(e_.graph_, e_.node_of(i.value, place));
  if (!std::is_sorted(i.over.begin(), i.over.end())) {
    Node n = e_.make(Op::permute_, {v.id});
    n.attributes.axes = order;
    v = Value::of_node(e_.graph_, e_.append(std::move(n), place));
  }
  // Extent 1 for the missing indices between and after; leading ones are left to broadcasting.
  const int first = i.over[order[0]];
  Shape shape(indices_.size() - first, Dim(1));
  for (size_t k = 0; k < order.size(); ++k) shape[i.over[order[k]] - first] = v.shape[k];
  return e_.reshape(v, std::move(shape), place);
}

Indexed::Item Indexed::combine(const std::vector<Item>& parts, const std::function<Value(std::vector<Value>)>& op) {
  Item out;
  std::vector<Value> values;
  for (const Item& p : parts) {
    values.push_back(aligned(p, {}));
    for (int k : p.over)
      if (std::find(out.over.begin(), out.over.end(), k) == out.over.end()) out.over.push_back(k);
  }
  std::sort(out.over.begin(), out.over.end());
  out.value = op(std::move(values));
  return out;
}

// ---- expressions

Indexed::Item Indexed::item(const Expr& e) {
  e_.session_.spend(e.place);
  const Elaboration::Deeper guard(e_.session_, e.place);
  if (!mentions(e)) {
    Item out;
    out.value = e_.plain(e_.expression(e), e.place);
    if (out.value.is_tensor() && !out.value.shape.empty())
      throw error_at(e.place, fmt::format("{} has no indices in index notation", written(out.value.type())),
                     "index each of its axes: x[i, j]");
    return out;
  }
  switch (e.kind) {
    case ExprKind::name: {  // an index as a number
      const int k = find_index(e.text);
      const Index& index = indices_[k];
      if (!index.extent)
        throw error_at(e.place, fmt::format("the extent of index '{}' is not known", e.text),
                       "use it as a subscript of a named tensor as well");
      Node n = e_.make(Op::iota_, {}, {{*index.extent}, {Scalar::i32, nullptr}});
      Item out;
      out.value = Value::of_node(e_.graph_, e_.append(std::move(n), e.place));
      out.over = {k};
      out.loose = true;
      if (index.first != 0) {
        out.value = Value::of_node(
            e_.graph_, e_.node_of(e_.binary("+", out.value, Value::of(Number::of(index.first)), e.place), e.place));
      }
      return out;
    }
    case ExprKind::index:
      return element(e);
    case ExprKind::reduce:
      return reduce(e);
    case ExprKind::unary:
      return combine({item(*e.args[0])}, [&](std::vector<Value> v) { return e_.unary(e.text, v[0], e.place); });
    case ExprKind::binary:
      return combine({item(*e.args[0]), item(*e.args[1])},
                     [&](std::vector<Value> v) { return e_.binary(e.text, v[0], v[1], e.place); });
    case ExprKind::choose: {
      const Item c = item(*e.args[0]);
      if (c.value.is_number()) return item(*e.args[c.value.number.integer != 0 ? 1 : 2]);
      return combine({c, item(*e.args[1]), item(*e.args[2])},
                     [&](std::vector<Value> v) { return e_.select(v[0], v[1], v[2], e.place); });
    }
    case ExprKind::call:
      return call(e);
    default:
      throw error_at(e.place, "this has no meaning in index notation", "compute it before, with 'let'");
  }
}

Indexed::Item Indexed::call(const Expr& e) {
  const lang::Function* fn = e_.find_function(e.text, e.place);
  if (!fn && scalar_from_name(e.text) && e.args.size() == 1)
    return combine({item(*e.args[0])},
                   [&](std::vector<Value> v) { return e_.convert(v[0], *scalar_from_name(e.text), e.place); });
  if (!fn && is_elementwise_builtin(e.text)) {
    std::vector<Item> parts;
    for (const auto& a : e.args) parts.push_back(item(*a));
    return combine(parts, [&](std::vector<Value> v) { return e_.elementwise(e.text, std::move(v), e.place); });
  }
  if (fn && e_.is_elementwise(*fn)) {
    std::vector<Item> parts;
    std::vector<Value> given = e_.arguments(*fn, e, [&](const Expr& a) {
      parts.push_back(item(a));
      return aligned(parts.back(), a.place);
    });
    return combine(parts, [&](const std::vector<Value>&) { return e_.inlined(*fn, given, e, false); });
  }
  throw error_at(e.place, fmt::format("'{}' is not elementwise: it cannot be applied to single elements", e.text),
                 "apply it to whole tensors before, with 'let'");
}

Indexed::Item Indexed::element(const Expr& e) {
  if (mentions(*e.args[0]))
    throw error_at(e.args[0]->place, "an indexed expression cannot be indexed again", "define it with a name first");
  Value base = e_.expression(*e.args[0]);
  if (!base.is_tensor()) throw error_at(e.args[0]->place, fmt::format("{} has no axes to index", describe(base)));
  base = Value::of_node(e_.graph_, e_.node_of(base, e.args[0]->place));
  const size_t rank = base.shape.size();
  if (e.args.size() - 1 != rank)
    throw error_at(e.place, fmt::format("{} subscripts for {}", e.args.size() - 1, written(base.type())),
                   fmt::format("index notation names every axis, and it has {}", rank));

  Item out;
  out.loose = true;
  std::vector<int64_t> starts(rank, 0);
  Shape sizes = base.shape, kept;
  bool sliced = false, moves = false;
  std::optional<Item> rows;
  std::vector<Affine> axes(rank);
  for (size_t axis = 0; axis < rank; ++axis) {
    const Expr& s = *e.args[axis + 1];
    const int k = s.kind == ExprKind::name ? find_index(s.text) : -1;
    if (k >= 0) {
      set_extent(k, base.shape[axis], s.place);
      const Index& index = indices_[k];
      if (std::find(out.over.begin(), out.over.end(), k) != out.over.end())
        throw error_at(s.place, fmt::format("index '{}' appears twice in one subscript list", s.text),
                       "a diagonal is select(i == j, x[i, j], 0.0), reduced over j");
      out.over.push_back(k);
      starts[axis] = index.first;
      sizes[axis] = *index.extent;
      sliced = sliced || index.first != 0 || sizes[axis] != base.shape[axis];
      kept.push_back(sizes[axis]);
      axes[axis] = {index.first, {{k, 1}}};
    } else if (s.kind == ExprKind::slice) {
      throw error_at(s.place, "a slice has no place in index notation",
                     "give the axis an index, or slice with 'let' before");
    } else if (s.kind == ExprKind::name && !e_.find(s.text)) {
      throw error_at(s.place, fmt::format("index '{}' is neither on the left side nor reduced", s.text),
                     fmt::format("reduce it: sum({}) ...", s.text));
    } else if (!mentions(s)) {
      const Value v = e_.expression(s);
      if (!v.is_integer() || v.number.integer < 0 ||
          (base.shape[axis].is_number() && v.number.integer >= base.shape[axis].coefficient))
        throw error_at(
            s.place,
            fmt::format("a subscript in index notation is an index or a whole number inside the axis, found {}",
                        describe(v)));
      starts[axis] = v.number.integer;
      sizes[axis] = Dim(1);
      sliced = true;
      axes[axis].start = starts[axis];
    } else if (auto sum = shifted(s, base, axis, e.outside != nullptr)) {
      for (const auto& [index, stride] : sum->strides) {
        if (is_among(out.over, index))
          throw error_at(s.place, fmt::format("index '{}' appears twice in one subscript list", indices_[index].name),
                         "a diagonal is select(i == j, x[i, j], 0.0), reduced over j");
        out.over.push_back(index);
      }
      axes[axis] = *std::move(sum);
      moves = true;
    } else {
      if (axis != 0)
        throw error_at(s.place, "only the first subscript may be computed from indices by more than sums of multiples",
                       "reorder the tensor with slices, reshape or permute before");
      rows = loose(item(s), s.place);
      if (!rows->value.is_tensor() || is_float(rows->value.element.scalar) ||
          rows->value.element.scalar == Scalar::boolean)
        throw error_at(s.place,
                       fmt::format("a computed subscript must be an integer, found {}", describe(rows->value)));
      kept.push_back(sizes[axis]);
    }
  }
  if (moves) return windowed(e, std::move(base), std::move(axes), std::move(rows));
  if (sliced) {
    Node n = e_.make(Op::slice_, {base.id}, {sizes, {}});
    n.attributes.starts = starts;
    n.attributes.strides.assign(rank, 1);
    base = Value::of_node(e_.graph_, e_.append(std::move(n), e.place));
  }
  out.value = e_.reshape(base, kept, e.place);
  if (rows) pick_rows(out, *std::move(rows), e.place);
  return out;
}

void Indexed::pick_rows(Item& out, Item rows, const Place& place) {
  for (int k : rows.over)
    if (is_among(out.over, k))
      throw error_at(place, fmt::format("index '{}' both picks rows and runs along another axis", indices_[k].name),
                     "one element of each row is sum(j) select(j == rows[i], x[i, j], 0.0)");
  out.over.insert(out.over.begin(), rows.over.begin(), rows.over.end());
  out.table = out.value.id;
  out.rows = rows.value.id;
  out.value = Value::of_node(e_.graph_, e_.append(e_.make(Op::gather_, {out.table, out.rows}), place));
}

// ---- reductions

// Rows of x times the matrices that integers select for them: the matrices are not copied. nullopt if the letters do
// not fit, or each row would be multiplied only by a vector.
std::optional<Indexed::Item> Indexed::contract_picked(const Item& x, const Item& picked, const std::vector<int>& summed,
                                                      const Place& place) {
  const auto has = [](const std::vector<int>& list, int k) {
    return std::find(list.begin(), list.end(), k) != list.end();
  };
  const auto letters = [&](const std::vector<int>& list) {
    std::string text;
    for (int k : list) text += indices_[k].letter;
    return text;
  };
  const auto count = std::ssize(e_.graph_[picked.rows].type.shape);
  const std::vector<int> rows(picked.over.begin(), picked.over.begin() + count);
  const std::vector<int> axes(picked.over.begin() + count, picked.over.end());
  Item out;
  out.loose = true;
  out.over = rows;
  for (int k : rows)
    if (has(summed, k)) return std::nullopt;
  for (int k : axes) {
    if (has(summed, k) != has(x.over, k)) return std::nullopt;
    if (!has(summed, k)) out.over.push_back(k);
  }
  if (out.over.size() == rows.size()) return std::nullopt;
  for (int k : x.over)
    if (!has(rows, k) && !has(axes, k)) return std::nullopt;
  char table = 'a';
  const std::string taken = letters(x.over) + letters(picked.over);
  while (table != 'z' && taken.find(table) != std::string::npos) ++table;
  if (taken.find(table) != std::string::npos) return std::nullopt;
  if (picked.value.id + 1 == std::ssize(e_.graph_.nodes)) e_.graph_.nodes.pop_back();
  Node n = e_.make(Op::contract_gather_, {e_.node_of(x.value, place), picked.table, picked.rows});
  n.attributes.indices = {letters(x.over), table + letters(axes), letters(rows), letters(out.over)};
  out.value = Value::of_node(e_.graph_, e_.append(std::move(n), place));
  return out;
}

Indexed::Item Indexed::contract(const Item& a, const Item& b, const std::vector<int>& summed, const Place& place) {
  for (const auto& [x, picked] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (picked->table >= 0)
      if (auto out = contract_picked(loose(*x, place), *picked, summed, place)) return *out;
  const Item x = loose(a, place), y = loose(b, place);
  std::string ia, ib, ir;
  for (int k : x.over) ia += indices_[k].letter;
  for (int k : y.over) ib += indices_[k].letter;
  Item out;
  out.loose = true;
  for (int k = 0; k < std::ssize(indices_); ++k) {
    const bool used = std::count(x.over.begin(), x.over.end(), k) + std::count(y.over.begin(), y.over.end(), k) > 0;
    if (!used || std::count(summed.begin(), summed.end(), k) > 0) continue;
    out.over.push_back(k);
    ir += indices_[k].letter;
  }
  Node n = e_.make(Op::contract_, {e_.node_of(x.value, place), e_.node_of(y.value, place)});
  n.attributes.indices = {ia, ib, ir};
  out.value = Value::of_node(e_.graph_, e_.append(std::move(n), place));
  return out;
}

namespace {

// The factors of a product, and its divisors.
void factors_of(const lang::ExprPtr& e, std::vector<lang::ExprPtr>& out) {
  if (e->kind == ExprKind::binary && e->text == "*") {
    factors_of(e->args[0], out);
    factors_of(e->args[1], out);
  } else {
    out.push_back(e);
  }
}

}  // namespace

// The indices of a reduction, each with its range if one is given.
std::vector<int> Indexed::open_indices(const Expr& e) {
  std::vector<int> summed;
  for (size_t i = 0; i < e.vars.size(); ++i) {
    Dim extent(1);
    int64_t first = 0;
    if (e.ranges[i].first) {
      first = e_.integer(*e.ranges[i].first, "the start of a range");
      const Value end = e_.expression(*e.ranges[i].second);
      if (first < 0) throw error_at(e.ranges[i].first->place, "an index starts at 0 or above");
      extent = e_.extent_of(end, e.ranges[i].second->place, "the end of a range");
      if (extent.is_number()) {
        extent.coefficient -= first;
        if (extent.coefficient < 1) throw error_at(e.place, fmt::format("the range of index '{}' is empty", e.vars[i]));
      } else if (first != 0) {
        throw error_at(e.ranges[i].first->place, "a range that ends at a symbol starts at 0");
      }
    }
    summed.push_back(add_index(e.vars[i], e.place));
    if (e.ranges[i].first) {
      indices_.back().extent = extent;
      indices_.back().first = first;
      indices_.back().ranged = extent.is_number();
    }
  }
  return summed;
}

// The product of `parts` reduced over `summed`, which are numbers of this expression's indices.
Indexed::Item Indexed::reduced(const Expr& e, const std::vector<int>& summed, std::vector<Item> parts) {
  Item product = parts[0];
  const auto floating = [](const Item& i) { return i.value.is_tensor() && is_float(i.value.element.scalar); };
  const auto same_indices = [&](const Item& a, const Item& b) {
    return std::all_of(a.over.begin(), a.over.end(), [&](int k) { return is_among(b.over, k); }) &&
           a.over.size() == b.over.size();
  };
  for (size_t i = 1; i + 1 < parts.size(); ++i)
    product = combine({product, parts[i]}, [&](std::vector<Value> v) { return e_.binary("*", v[0], v[1], e.place); });
  const Item* last = parts.size() > 1 ? &parts.back() : nullptr;
  const auto touches = [&](const Item& i) {
    return std::any_of(summed.begin(), summed.end(), [&](int k) { return is_among(i.over, k); });
  };

  if (last && floating(product) && floating(*last) && touches(product) && touches(*last) &&
      !same_indices(product, *last)) {
    // Indices of only one factor are summed there first.
    const auto alone = [&](Item i, const Item& other) {
      std::vector<int> axes, rest;
      i = loose(i, e.place);
      Shape shape;
      for (size_t k = 0; k < i.over.size(); ++k) {
        if (is_among(summed, i.over[k]) && !is_among(other.over, i.over[k])) {
          axes.push_back(k);
        } else {
          rest.push_back(i.over[k]);
          shape.push_back(i.value.shape[k]);
        }
      }
      if (axes.empty()) return i;
      i.table = -1;
      i.value = e_.reshape(e_.reduction("sum", i.value, axes, e.place), shape, e.place);
      i.over = rest;
      return i;
    };
    const Item a = alone(product, *last), b = alone(*last, product);
    if (touches(a) && touches(b)) return contract(a, b, summed, e.place);
    product = a;
    parts.back() = b;
  }
  if (last)
    product = combine({product, *last}, [&](std::vector<Value> v) { return e_.binary("*", v[0], v[1], e.place); });
  product = loose(product, e.place);
  std::vector<int> axes, rest;
  Shape shape;
  for (size_t k = 0; k < product.over.size(); ++k) {
    if (is_among(summed, product.over[k])) {
      axes.push_back(k);
    } else {
      rest.push_back(product.over[k]);
      shape.push_back(product.value.shape[k]);
    }
  }
  if (!axes.empty()) product.value = e_.reduction(e.text == "mean" ? "sum" : e.text, product.value, axes, e.place);
  Item result;
  result.value = e_.reshape(product.value, shape, e.place);
  result.over = rest;
  result.loose = true;
  return result;
}

Indexed::Item Indexed::reduce(const Expr& e) {
  const std::vector<int> summed = open_indices(e);
  learn_extents(*e.args[0]);
  const size_t outer = indices_.size() - summed.size();
  const auto leave = [&](Item out) {
    for (size_t k = outer; k < indices_.size(); ++k)
      if (!indices_[k].extent)
        throw error_at(e.place, fmt::format("index '{}' is not used in the reduced expression", indices_[k].name),
                       "use it as a subscript, or give it a range: sum(j in 0..8)");
    indices_.resize(outer);
    return out;
  };

  // Sums of products: factors without summed indices are multiplied outside, two remaining ones are contracted.
  const bool sums = e.text == "sum" || e.text == "mean";
  lang::ExprPtr body = e.args[0];
  lang::ExprPtr divisor;
  if (sums && body->kind == ExprKind::binary && body->text == "/" && !mentions(*body->args[1], summed)) {
    divisor = body->args[1];
    body = body->args[0];
  }
  std::vector<lang::ExprPtr> inside, outside;
  std::vector<lang::ExprPtr> all;
  if (sums) {
    factors_of(body, all);
  } else {
    all = {body};
  }
  for (const auto& f : all) (mentions(*f, summed) ? inside : outside).push_back(f);
  if (inside.empty())
    throw error_at(e.place, fmt::format("index '{}' is not used in the reduced expression", e.vars[0]),
                   "remove it, or use it as a subscript");

  std::vector<Item> parts;
  for (const auto& f : inside) parts.push_back(item(*f));
  for (int k : summed)
    if (!std::any_of(parts.begin(), parts.end(), [&](const Item& i) { return is_among(i.over, k); }))
      throw error_at(e.place, fmt::format("index '{}' is not used in the reduced expression", indices_[k].name));
  Item result = reduced(e, summed, std::move(parts));
  Dim count(1);
  for (int k : summed) count = count * indices_[k].extent.value_or(Dim(1));
  result = leave(std::move(result));
  if (e.text == "mean")
    result = combine({result}, [&](std::vector<Value> v) { return e_.binary("/", v[0], Value::of(count), e.place); });
  for (const auto& f : outside)
    result = combine({item(*f), result}, [&](std::vector<Value> v) { return e_.binary("*", v[0], v[1], f->place); });
  if (divisor)
    result = combine({result, item(*divisor)},
                     [&](std::vector<Value> v) { return e_.binary("/", v[0], v[1], divisor->place); });
  return result;
}

// ---- entry points

Value Indexed::whole(const Expr& e) {
  return loose(item(e), e.place).value;
}

Value Indexed::define(const lang::Stmt& s) {
  const Expr& target = *s.targets[0];
  for (size_t i = 1; i < target.args.size(); ++i) {
    const Expr& t = *target.args[i];
    if (t.kind != ExprKind::name)
      throw error_at(t.place, "the left side of index notation has only names of indices",
                     "e.g. y[m, n] = sum(k) x[m, k] * w[n, k]");
    if (find_index(t.text) >= 0)
      throw error_at(t.place, fmt::format("index '{}' appears twice on the left side", t.text));
    add_index(t.text, t.place);
  }
  if (target.outside) throw error_at(target.outside->place, "a padding value is for tensors that are read");
  learn_extents(*s.value);
  const auto declared = e_.declared_extents(target.args[0]->text, indices_.size());
  for (size_t k = 0; k < indices_.size(); ++k)
    if (!indices_[k].extent) indices_[k].extent = declared[k];
  Item result = loose(item(*s.value), s.value->place);
  for (size_t k = 0; k < indices_.size(); ++k)
    if (!indices_[k].extent)
      throw error_at(target.args[k + 1]->place,
                     fmt::format("index '{}' is not used on the right side", indices_[k].name),
                     "its extent would be unknown: use it as a subscript");
  Shape full;
  for (const Index& i : indices_) full.push_back(*i.extent);
  Value v = aligned(result, s.place);
  const ValueId id = e_.node_of(v, s.place);
  if (e_.graph_[id].type.shape == full) return Value::of_node(e_.graph_, id);
  return Value::of_node(e_.graph_, e_.append(e_.make(Op::broadcast_, {id}, {std::move(full), {}}), s.place));
}

}  // namespace lumen::graph
