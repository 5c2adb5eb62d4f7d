#include "model/templates/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "model/templates/template_run.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::templates {

using Expression = TemplateExpression;
using Node = TemplateNode;

// Limit on the total size of all values a template creates: bytes of strings, elements of lists. TemplateMeter limits
// steps and time.
constexpr uint64_t kMostWork = 64 << 20;
constexpr uint64_t kNodeSteps = 8, kTurnSteps = 64;  // cost of a statement or expression, and of a loop iteration
constexpr size_t kLongestText = 16 << 20;
constexpr int kDeepest = 200;

void refuse(std::string message) {
  throw TemplateFault{std::move(message)};
}

void refuse_undefined(const Value& value) {
  refuse(value.why_undefined().empty() ? "a value is undefined" : value.why_undefined());
}

struct TemplateDepth {
  explicit TemplateDepth(TemplateRun& r) : run(r) {
    if (++run.depth_ > kDeepest) {
      --run.depth_;
      refuse("the template's calls are nested too deeply");
    }
  }
  ~TemplateDepth() { --run.depth_; }
  TemplateRun& run;
};

void TemplateRun::wrong(size_t at, const TemplateFault& fault) const {
  const uint32_t begin = std::min(at, tree_.source->text.size());
  const Error error = error_at({tree_.source, begin, begin + 1}, fault.message);
  if (fault.is_overrun) throw TemplateOverrun(error);
  throw error;
}

void TemplateRun::charge(uint64_t cost) {
  spent_ += cost;
  TemplateMeter::step(1 + cost);
  if (spent_ > kMostWork) refuse("the template reached its memory limit");
}

Value TemplateRun::made(std::string text) {
  if (text.size() > kLongestText) refuse("a string is too long");
  charge(text.size() + 1);
  return Value(std::move(text));
}

Value TemplateRun::made(ValueList items, bool tuple) {
  charge(items.size() * 16 + 1);
  return Value::list(std::move(items), tuple);
}

void TemplateRun::print(const std::string& text, std::string& out) {
  charge(text.size() + 1);
  if (out.size() + text.size() > kLongestText) refuse("the template prints too much");
  out += text;
}

std::string TemplateRun::run(const nlohmann::ordered_json& context, const TemplateLimits& limits) {
  const TemplateMeter meter(limits.steps, limits.seconds);
  const TemplateMarks marks(marks_);
  auto globals = std::make_shared<TemplateScope>();
  define_globals(*globals);
  auto scope = std::make_shared<TemplateScope>();
  scope->parent = globals;
  for (const auto& [key, value] : context.items()) scope->names[key] = Value::from_json(value);
  std::string out;
  body(tree_.body, scope, out);
  // Macros hold a reference to their scope; this breaks the cycle.
  scope->names.clear();
  globals->names.clear();
  return out;
}

TemplateRun::Flow TemplateRun::body(const std::vector<Node>& nodes, const TemplateScopeRef& scope, std::string& out) {
  for (const Node& n : nodes) {
    if (const Flow flow = node(n, scope, out); flow != Flow::on) return flow;
  }
  return Flow::on;
}

std::string TemplateRun::capture(const std::vector<Node>& nodes, const TemplateScopeRef& scope) {
  std::string out;
  body(nodes, scope, out);
  return out;
}

TemplateRun::Flow TemplateRun::node(const Node& n, const TemplateScopeRef& scope, std::string& out) {
  const auto inner = [&] {
    auto s = std::make_shared<TemplateScope>();
    s->parent = scope;
    return s;
  };
  try {
    const TemplateDepth deeper(*this);
    TemplateMeter::step(kNodeSteps);
    switch (n.kind) {
      case Node::Kind::text:
        print(n.text, out);
        return Flow::on;
      case Node::Kind::print:
        print(evaluate(*n.expression, scope).print(), out);
        return Flow::on;
      case Node::Kind::loop:
        return loop(n, evaluate(*n.expression, scope), 0, scope, out);
      case Node::Kind::branch:
        return body(evaluate(*n.expression, scope).truth() ? n.body : n.other, scope, out);
      case Node::Kind::set:
        assign(*n.target, evaluate(*n.expression, scope), scope);
        return Flow::on;
      case Node::Kind::capture: {
        Value text = made(capture(n.body, inner()));
        if (n.expression) {
          auto named = inner();
          named->names[""] = text;
          text = evaluate(*n.expression, named);
        }
        assign(*n.target, text, scope);
        return Flow::on;
      }
      case Node::Kind::macro:
        scope->names[n.text] = macro(n.text, n, scope);
        return Flow::on;
      case Node::Kind::call: {
        const Value caller = macro("caller", n, scope);
        const Value function = evaluate(*n.expression->parts[0], scope);
        TemplateCall c = arguments(*n.expression, scope);
        c.named.emplace_back("caller", caller);
        print(call(function, c).print(), out);
        return Flow::on;
      }
      case Node::Kind::filter: {
        auto named = inner();
        named->names[""] = made(capture(n.body, inner()));
        print(evaluate(*n.expression, named).print(), out);
        return Flow::on;
      }
      case Node::Kind::with: {
        // Values are evaluated outside, so that a name does not see those before it.
        auto named = inner();
        for (const auto& [target, value] : n.names) assign(*target, evaluate(*value, scope), named);
        return body(n.body, named, out);
      }
      case Node::Kind::leave:
        return Flow::leave;
      case Node::Kind::next:
        return Flow::next;
      case Node::Kind::answer: {
        if (marks_.around_answers) print(marks_.begin, out);
        const Flow flow = body(n.body, scope, out);
        if (marks_.around_answers) print(marks_.end, out);
        return flow;
      }
    }
  } catch (const TemplateFault& fault) {
    wrong(n.at, fault);
  }
  return Flow::on;
}

TemplateRun::Flow TemplateRun::loop(const Node& n, const Value& over, int64_t depth, const TemplateScopeRef& scope,
                                    std::string& out) {
  ValueList items = iterate(over);
  if (n.condition) {
    ValueList kept;
    for (const Value& item : items) {
      TemplateMeter::step(kNodeSteps);
      auto s = std::make_shared<TemplateScope>();
      s->parent = scope;
      assign(*n.target, item, s);
      if (evaluate(*n.condition, s).truth()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  charge(items.size());
  const auto count = std::ssize(items);
  auto state = std::make_shared<FunctionValue>();
  state->name = "loop";
  state->object = "<LoopContext>";
  int64_t index = 0;
  auto changed = std::make_shared<std::optional<ValueList>>();
  auto member = [&](const char* name, auto call) {
    auto f = std::make_shared<FunctionValue>();
    f->name = name;
    f->call = std::move(call);
    state->members[name] = Value::function(std::move(f));
  };
  auto position = std::make_shared<int64_t>(0);
  member("cycle", [position](TemplateCall& c) {
    if (c.values.empty()) refuse("no items for cycling given");
    return c.values[(*position) % c.values.size()];
  });
  member("changed", [changed](TemplateCall& c) {
    const bool differs = !*changed || !Value::list(**changed).same(Value::list(c.values));
    if (differs) *changed = c.values;
    return Value(differs);
  });
  const TemplateScopeRef around = scope;
  const Node* const statement = &n;
  if (n.recursive) {
    state->call = [this, statement, depth, around](TemplateCall& c) {
      const TemplateDepth deeper(*this);
      c.at_most(1, "loop");
      std::string inside;
      loop(*statement, c.get(0, "iterable"), depth + 1, around, inside);
      return made(std::move(inside));
    };
  } else {
    state->call = [](TemplateCall&) -> Value { refuse("the loop is not recursive"); };
  }
  for (; index < count; ++index) {
    TemplateMeter::step(kTurnSteps);
    auto s = std::make_shared<TemplateScope>();
    s->parent = scope;
    *position = index;
    auto& m = state->members;
    m["index"] = index + 1;
    m["index0"] = index;
    m["revindex"] = count - index;
    m["revindex0"] = count - index - 1;
    m["first"] = index == 0;
    m["last"] = index + 1 == count;
    m["length"] = count;
    m["depth"] = depth + 1;
    m["depth0"] = depth;
    m["previtem"] = index > 0 ? items[index - 1] : Value::undefined("there is no previous item");
    m["nextitem"] = index + 1 < count ? items[index + 1] : Value::undefined("there is no next item");
    s->names["loop"] = Value::function(state);
    assign(*n.target, items[index], s);
    const Flow flow = body(n.body, s, out);
    if (flow == Flow::leave) break;
  }
  state->members.clear();  // a loop's members may refer to the loop; this breaks the cycle
  state->call = [](TemplateCall&) -> Value { refuse("the loop is over"); };
  if (count == 0) return body(n.other, scope, out);
  return Flow::on;
}

Value TemplateRun::macro(const std::string& name, const Node& n, const TemplateScopeRef& scope) {
  auto f = std::make_shared<FunctionValue>();
  f->name = name;
  f->object = "<Macro '" + name + "'>";
  f->members["name"] = name;
  const Node* const statement = &n;
  const std::weak_ptr<TemplateScope> around = scope;
  f->call = [this, statement, around, name](TemplateCall& c) {
    const TemplateDepth deeper(*this);
    const TemplateScopeRef outer = around.lock();
    if (!outer) refuse("macro '" + name + "' is called where it no longer exists");
    auto s = std::make_shared<TemplateScope>();
    s->parent = outer;
    const auto& parameters = statement->parameters;
    std::vector<bool> used(c.named.size(), false);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& p = parameters[i];
      Value value = Value::undefined(fmt::format("parameter '{}' was not provided", p.name));
      bool given = i < c.values.size();
      if (given) value = c.values[i];
      for (size_t k = 0; k < c.named.size(); ++k) {
        if (c.named[k].first != p.name) continue;
        if (given) refuse(fmt::format("macro '{}' got two values for '{}'", name, p.name));
        value = c.named[k].second;
        given = used[k] = true;
      }
      if (!given && p.fallback) value = evaluate(*p.fallback, s);
      s->names[p.name] = value;
    }
    ValueList rest;
    for (size_t i = parameters.size(); i < c.values.size(); ++i) rest.push_back(c.values[i]);
    auto named = std::make_shared<TableValue>();
    for (size_t k = 0; k < c.named.size(); ++k) {
      if (used[k]) continue;
      if (c.named[k].first == "caller") {
        s->names["caller"] = c.named[k].second;
      } else {
        named->set(Value(c.named[k].first), c.named[k].second);
      }
    }
    const bool uses_rest = tree_.source->text.find("varargs") != std::string::npos,
               uses_named = tree_.source->text.find("kwargs") != std::string::npos;
    if (!rest.empty() && !uses_rest)
      refuse(fmt::format("macro '{}' takes not more than {} argument(s)", name, parameters.size()));
    if (!named->items.empty() && !uses_named)
      refuse(fmt::format("macro '{}' takes no keyword argument '{}'", name, named->items[0].first.print()));
    s->names["varargs"] = Value::list(std::move(rest), true);
    s->names["kwargs"] = Value::table(named);
    return made(capture(statement->body, s));
  };
  return Value::function(std::move(f));
}

void TemplateRun::assign(const Expression& target, const Value& value, const TemplateScopeRef& scope) {
  if (target.kind == Expression::Kind::name) {
    scope->names[target.text] = value;
  } else if (target.kind == Expression::Kind::member) {
    const Value space = evaluate(*target.parts[0], scope);
    if (!space.is_table() || !space.table().changes) refuse("cannot assign attribute on non-namespace object");
    charge(16);
    space.table().set(Value(target.text), value);
  } else {
    const ValueList items = iterate(value);
    if (items.size() != target.parts.size())
      refuse(fmt::format("{} values for {} names", items.size(), target.parts.size()));
    for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
  }
}

Value TemplateRun::name(const std::string& text, const TemplateScopeRef& scope) {
  for (const TemplateScope* s = scope.get(); s != nullptr; s = s->parent.get()) {
    if (const auto found = s->names.find(text); found != s->names.end()) return found->second;
  }
  return Value::undefined(fmt::format("'{}' is undefined", text));
}

TemplateCall TemplateRun::arguments(const Expression& e, const TemplateScopeRef& scope) {
  TemplateCall out;
  for (const auto& a : e.arguments) {
    Value value = evaluate(*a.value, scope);
    if (a.spread == 1) {
      for (Value& item : iterate(value)) out.values.push_back(std::move(item));
    } else if (a.spread == 2) {
      if (!value.is_table()) refuse("the argument after ** must be a mapping");
      for (const auto& [key, item] : value.table().items) out.named.emplace_back(key.print(), item);
    } else if (a.name.empty()) {
      out.values.push_back(std::move(value));
    } else {
      out.named.emplace_back(a.name, std::move(value));
    }
  }
  return out;
}

Value TemplateRun::call(const Value& function, TemplateCall& c) {
  if (function.is_undefined()) refuse_undefined(function);
  if (!function.is_function() || !function.function().call)
    refuse(fmt::format("'{}' object is not callable", function.type_name()));
  // Keeps the function alive while it runs.
  const Value keep = function;
  return keep.function().call(c);
}

Value TemplateRun::evaluate(const Expression& e, const TemplateScopeRef& scope) {
  try {
    const TemplateDepth deeper(*this);
    TemplateMeter::step(kNodeSteps);
    const auto part = [&](size_t i) { return evaluate(*e.parts[i], scope); };
    switch (e.kind) {
      case Expression::Kind::constant:
        return e.value;
      case Expression::Kind::name:
        return name(e.text, scope);
      case Expression::Kind::member:
        return member(part(0), e.text);
      case Expression::Kind::item:
        return item(part(0), part(1));
      case Expression::Kind::slice: {
        const auto bound = [&](size_t i) { return e.parts[i] ? evaluate(*e.parts[i], scope) : Value(None{}); };
        return slice(part(0), bound(1), bound(2), bound(3));
      }
      case Expression::Kind::call: {
        const Value function = part(0);
        TemplateCall c = arguments(e, scope);
        return call(function, c);
      }
      case Expression::Kind::filter: {
        const Value value = part(0);
        TemplateCall c = arguments(e, scope);
        return filter(e.text, value, c);
      }
      case Expression::Kind::test: {
        const Value value = part(0);
        TemplateCall c = arguments(e, scope);
        return test(e.text, value, c);
      }
      case Expression::Kind::list:
      case Expression::Kind::tuple: {
        ValueList items;
        for (size_t i = 0; i < e.parts.size(); ++i) items.push_back(part(i));
        return made(std::move(items), e.kind == Expression::Kind::tuple);
      }
      case Expression::Kind::table: {
        auto table = std::make_shared<TableValue>();
        for (size_t i = 0; i + 1 < e.parts.size(); i += 2) table->set(part(i), part(i + 1));
        charge(table->items.size() * 16);
        return Value::table(std::move(table));
      }
      case Expression::Kind::negative:
      case Expression::Kind::positive: {
        const Value v = part(0);
        if (v.is_undefined()) refuse_undefined(v);
        if (!v.is_number()) refuse(fmt::format("bad operand type for unary -: '{}'", v.type_name()));
        const bool minus = e.kind == Expression::Kind::negative;
        if (v.is_float()) return minus ? -v.number() : v.number();
        if (minus && v.integer() == INT64_MIN) refuse("a number is too large");
        return minus ? -v.integer() : v.integer();
      }
      case Expression::Kind::inverse:
        return !part(0).truth();
      case Expression::Kind::both: {
        Value left = part(0);
        return left.truth() ? part(1) : left;
      }
      case Expression::Kind::either: {
        Value left = part(0);
        return left.truth() ? left : part(1);
      }
      case Expression::Kind::choice:
        if (part(1).truth()) return part(0);
        if (e.parts[2]) return part(2);
        return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
      case Expression::Kind::arithmetic:
        return arithmetic(e.text, part(0), part(1));
      case Expression::Kind::joined: {
        std::string out;
        for (size_t i = 0; i < e.parts.size(); ++i) {
          out += part(i).print();
          charge(out.size());
        }
        return made(std::move(out));
      }
      case Expression::Kind::comparison: {
        Value left = part(0);
        for (size_t i = 0; i < e.operators.size(); ++i) {
          Value right = part(i + 1);
          if (!compare(e.operators[i], left, right)) return false;
          left = std::move(right);
        }
        return true;
      }
    }
  } catch (const TemplateFault& fault) {
    wrong(e.at, fault);
  }
  return Value();
}

bool TemplateRun::compare(const std::string& sign, const Value& a, const Value& b) {
  charge(1 + (a.is_text() ? a.text().size() / 8 : 0));
  if (sign == "==") return a.same(b);
  if (sign == "!=") return !a.same(b);
  if (sign == "in") return contains(b, a);
  if (sign == "not in") return !contains(b, a);
  if (a.is_undefined()) refuse_undefined(a);
  if (b.is_undefined()) refuse_undefined(b);
  const auto order = a.order(b);
  if (!order)
    refuse(fmt::format("'{}' not supported between instances of '{}' and '{}'", sign, a.type_name(), b.type_name()));
  if (sign == "<") return *order < 0;
  if (sign == "<=") return *order <= 0;
  if (sign == ">") return *order > 0;
  return *order >= 0;
}

Value TemplateRun::add(const Value& a, const Value& b) {
  if (a.is_undefined()) refuse_undefined(a);
  if (b.is_undefined()) refuse_undefined(b);
  if (a.is_text() && b.is_text()) {
    if (a.text().size() + b.text().size() > kLongestText) refuse("a string is too long");
    if (!a.is_markup() && !b.is_markup()) return made(a.text() + b.text());
    const auto escaped = [](const Value& v) { return v.is_markup() ? v.text() : as_markup(v.text()); };
    return Value::markup(made(escaped(a) + escaped(b)).text());
  }
  if (a.is_sequence() && b.is_sequence() && a.list().tuple == b.list().tuple) {
    charge((a.list().items.size() + b.list().items.size()) * 16);
    ValueList items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return Value::list(std::move(items), a.list().tuple);
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.number() + b.number();
    int64_t out = 0;
    if (__builtin_add_overflow(a.integer(), b.integer(), &out)) refuse("a number is too large");
    return out;
  }
  if (a.is_text()) refuse(fmt::format("can only concatenate str (not \"{}\") to str", b.type_name()));
  refuse(fmt::format("unsupported operand type(s) for +: '{}' and '{}'", a.type_name(), b.type_name()));
}

Value TemplateRun::arithmetic(const std::string& sign, const Value& a, const Value& b) {
  if (sign == "+") return add(a, b);
  if (a.is_undefined()) refuse_undefined(a);
  if (sign == "%" && a.is_text()) return made(format_percent(a.text(), b));
  if (b.is_undefined()) refuse_undefined(b);
  const auto repeats = [](const Value& v) { return v.is_text() || v.is_sequence(); };
  if (sign == "*" && (repeats(a) || repeats(b))) {
    const Value &many = repeats(a) ? a : b, &times = repeats(a) ? b : a;
    if (!times.is_integer() && !times.is_bool())
      refuse(fmt::format("can't multiply sequence by non-int of type '{}'", times.type_name()));
    const uint64_t n = std::max<int64_t>(0, times.integer());
    const uint64_t size = many.is_text() ? many.text().size() : many.list().items.size() * 16;
    if (size != 0 && n > kLongestText / size) refuse("a string or list is too long");
    charge(n * size);
    if (many.is_text()) {
      std::string out;
      for (uint64_t i = 0; i < n && size != 0; ++i) out += many.text();
      return made(std::move(out));
    }
    ValueList items;
    for (uint64_t i = 0; i < n && size != 0; ++i)
      items.insert(items.end(), many.list().items.begin(), many.list().items.end());
    return made(std::move(items), many.list().tuple);
  }
  if (!a.is_number() || !b.is_number())
    refuse(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", sign, a.type_name(), b.type_name()));
  const bool floats = a.is_float() || b.is_float();
  const auto overflow = [](bool is) {
    if (is) refuse("a number is too large");
  };
  if (sign == "-" || sign == "*") {
    if (floats) return sign == "-" ? a.number() - b.number() : a.number() * b.number();
    int64_t out = 0;
    overflow(sign == "-" ? __builtin_sub_overflow(a.integer(), b.integer(), &out)
                         : __builtin_mul_overflow(a.integer(), b.integer(), &out));
    return out;
  }
  if (sign == "**") {
    if (floats || b.integer() < 0) return std::pow(a.number(), b.number());
    int64_t out = 1;
    charge(std::min<int64_t>(b.integer(), 1 << 20));
    for (int64_t i = 0; i < b.integer(); ++i) {
      overflow(__builtin_mul_overflow(out, a.integer(), &out));
      if (out == 0 || (out == 1 && a.integer() == 1)) break;
      if (i > 1 << 20) refuse("a number is too large");
    }
    return out;
  }
  if (b.number() == 0) refuse("division by zero");
  if (sign == "/") return a.number() / b.number();
  if (floats) {
    const double quotient = std::floor(a.number() / b.number());
    if (sign == "//") return quotient;
    double rest = std::fmod(a.number(), b.number());
    if (rest != 0 && (rest < 0) != (b.number() < 0)) rest += b.number();
    return rest;
  }
  overflow(a.integer() == INT64_MIN && b.integer() == -1);
  int64_t quotient = a.integer() / b.integer(), rest = a.integer() % b.integer();
  if (rest != 0 && (rest < 0) != (b.integer() < 0)) {
    --quotient;
    rest += b.integer();
  }
  return sign == "//" ? quotient : rest;
}

Value TemplateRun::slice(const Value& object, const Value& from, const Value& to, const Value& by) {
  if (object.is_undefined()) refuse_undefined(object);
  if (!object.is_text() && !object.is_sequence())
    return Value::undefined(fmt::format("'{}' object cannot be sliced", object.type_name()));
  for (const Value* v : {&from, &to, &by}) {
    if (!v->is_none() && !v->is_integer() && !v->is_bool()) refuse("slice indices must be integers or None");
  }
  std::optional<MarkedText> marked;
  if (object.is_text() && TemplateMarks::any(object.text())) marked.emplace(object.text());
  const std::string* const whole = marked ? &marked->text() : object.is_text() ? &object.text() : nullptr;
  const std::vector<size_t> starts = whole ? character_starts(*whole) : std::vector<size_t>();
  const int64_t size = whole ? starts.size() - 1 : object.list().items.size();
  charge(size);
  const int64_t step = by.is_none() ? 1 : by.integer();
  if (step == 0) refuse("slice step cannot be zero");
  const auto bound = [&](const Value& v, int64_t fallback) {
    if (v.is_none()) return fallback;
    int64_t i = v.integer();
    if (i < 0) i = std::max(i + size, step < 0 ? int64_t{-1} : int64_t{0});
    return std::min(i, step < 0 ? size - 1 : size);
  };
  const int64_t begin = bound(from, step < 0 ? size - 1 : 0), end = bound(to, step < 0 ? -1 : size);
  std::string text;
  ValueList items;
  if (marked && step == 1) return made(marked->part(starts[std::min(begin, end)], starts[end]));
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    const size_t n = i;
    if (object.is_text()) {
      text += marked ? marked->part(starts[n], starts[n + 1]) : whole->substr(starts[n], starts[n + 1] - starts[n]);
    } else {
      items.push_back(object.list().items[n]);
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return object.is_text() ? made(std::move(text)) : made(std::move(items), object.list().tuple);
}

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& name) {
  ChatTemplate out;
  out.tree_ = std::make_shared<const TemplateTree>(parse_template(text, name));
  return out;
}

bool ChatTemplate::has_answers() const {
  return tree_->has_answers;
}

std::string ChatTemplate::render(const nlohmann::ordered_json& context, const std::function<std::tm()>& now,
                                 const AnswerMarks& marks, const TemplateLimits& limits) const {
  const auto clock = [] {
    const std::time_t seconds = std::time(nullptr);
    std::tm out{};
    localtime_r(&seconds, &out);
    return out;
  };
  return TemplateRun(*tree_, now ? now : clock, marks).run(context, limits);
}

}  // namespace lumen::model::templates
