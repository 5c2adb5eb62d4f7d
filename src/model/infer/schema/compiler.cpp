#include "model/infer/schema/compiler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lumen::model::infer {
namespace {

constexpr size_t kMostRules = 20'000, kMostBytes = size_t{3} << 19, kMostWork = 3'000'000, kMostRelaxed = 64;

}  // namespace

SchemaCompiler::SchemaCompiler(SchemaDocument& document, const std::string& prefix, bool is_exact,
                               std::function<bool()> is_stopped)
    : document_(document),
      validator_(document),
      rules_(prefix),
      is_exact_(is_exact),
      is_stopped_(std::move(is_stopped)) {}

int32_t SchemaCompiler::run(const Json* schema) {
  const int32_t root = rule_of({whole(schema)}, true);
  while (!open_.empty()) {
    if (is_stopped_ && is_stopped_()) throw user_error("JSON schema: compiling was stopped");
    const Task task = std::move(open_.front());
    open_.pop_front();
    fill(task);
  }
  return root;
}

// Counts work, and returns true when the bounds are reached; then what remains is relaxed.
bool SchemaCompiler::is_full(size_t work) {
  work_ += work;
  return work_ > kMostWork || rules_.count() > kMostRules || rules_.bytes() > kMostBytes;
}

void SchemaCompiler::relax(const Json* schema, std::string_view keyword) {
  if (relaxed_.size() >= kMostRelaxed) return;
  const std::string place = document_.place(schema);
  relaxed_.insert(keyword.empty() ? place : fmt::format("{}/{}", place == "#" ? "" : place, keyword));
}

int32_t SchemaCompiler::value_rule() {
  if (value_ < 0) value_ = rules_.add({{Rules::text("value")}});
  return value_;
}

int32_t SchemaCompiler::rule_of(Items items, bool is_one) {
  // The order stays, because members are written in it; sets are compared without it.
  Items unique;
  std::set<Item> seen;
  for (const Item& item : items)
    if (seen.insert(item).second) unique.push_back(item);
  if (unique.empty()) return value_rule();
  std::pair<Items, bool> key(Items(seen.begin(), seen.end()), is_one);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  if (is_full(10 * unique.size())) {  // sets are copied and compared
    for (const Item& item : unique)
      if (item.schema) relax(item.schema, "");
    return value_rule();
  }
  const int32_t rule = rules_.add();
  known_.emplace(std::move(key), rule);
  open_.push_back({rule, std::move(unique), is_one});
  return rule;
}

void SchemaCompiler::fill(const Task& task) {
  const Flat set = flatten(task.items);
  is_full(set.locals.size());
  if (set.is_dead || put_values(task.rule, task.items, set)) return;
  unsigned types = types_of(set);
  if (types == 0) return;
  if (!set.choices.empty()) {
    // One choice is made here, the others in the rules of its alternatives.
    Items others;
    for (const Json* local : set.locals) others.push_back({Item::Kind::local, local, 0});
    for (size_t i = 1; i < set.choices.size(); ++i) others.push_back({Item::Kind::choice, nullptr, set.choices[i]});
    const Choice choice = choices_[set.choices[0]];
    for (const Items& alternative : choice) {
      Items next = others;
      next.insert(next.end(), alternative.begin(), alternative.end());
      rules_.put(task.rule, {Rules::use(rule_of(std::move(next), task.is_one && !set.locals.empty()))});
    }
    return;
  }
  if (!is_exact_ && types == all) types &= inferred(set);
  const auto is_free = [&](const Json* local) { return document_.node(local).keywords.empty(); };
  if (types == all && std::all_of(set.locals.begin(), set.locals.end(), is_free)) {
    rules_.put(task.rule, {Rules::text("value")});
    return;
  }
  const auto is_excluded = [&](const Json& value) {
    return std::any_of(set.locals.begin(), set.locals.end(), [&](const Json* local) {
      const Json* list = find(local, "\x01notEnum");
      return list && std::find(list->begin(), list->end(), value) != list->end();
    });
  };
  if ((types & null) && !is_excluded(nullptr)) rules_.put(task.rule, {Rules::text("null")});
  if (types & boolean)
    for (const bool value : {true, false})
      if (!is_excluded(value)) rules_.put(task.rule, {Rules::text(value ? "\"true\"" : "\"false\"")});
  if (types & integer) put_number(task.rule, set, !(types & fraction));
  if (types & text) put_string(task.rule, set);
  if (types & array) put_array(task.rule, set, task.is_one);
  if (types & object) put_object(task.rule, set, task.is_one);
}

}  // namespace lumen::model::infer
