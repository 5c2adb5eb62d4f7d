// Rules of objects and arrays.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "model/infer/schema/compiler.h"

namespace lumen::model::infer {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostCounts = 4000;    // rules that count members or items
constexpr int64_t kMostItems = 200'000;  // items that rules count
constexpr size_t kMostUnique = 8, kMostPatterns = 4, kMostMembers = 2000;

const ordered_json kNever = false;

RulePart comma() {
  return Rules::text("\",\" space");
}

}  // namespace

// The schemas of a member: those of properties and patternProperties that name it, else additionalProperties.
SchemaCompiler::Items SchemaCompiler::member_items(const std::string& name, const Flat& set) {
  Items out;
  std::vector<const Json*> unevaluated;
  bool is_evaluated = false;
  for (const Json* local : set.locals) {
    bool is_known = false;
    if (const Json* listed = find(local, "properties")) {
      auto& index = properties_[listed];
      if (index.empty())
        for (const auto& [key, schema] : listed->items()) index.emplace(key, &schema);
      if (const auto found = index.find(name); found != index.end()) {
        out.push_back(whole(found->second));
        is_known = true;
      }
    }
    if (const Json* patterns = find(local, "patternProperties")) {
      for (const auto& [key, schema] : patterns->items()) {
        is_full(name.size());
        const EcmaPattern* pattern = validator_.pattern(key);
        if (!pattern) relax(local, "patternProperties");
        if (!pattern || !pattern->matches(name)) continue;
        out.push_back(whole(&schema));
        is_known = true;
      }
    }
    const Json* others = find(local, "additionalProperties");
    if (!is_known && others) {
      out.push_back(whole(others));
      is_known = true;
    }
    if (const Json* names = find(local, "propertyNames"))
      if (!validator_.check(name, names).value_or(true)) out.push_back(whole(&kNever));
    if (const auto found = opposite_members_.find(local); found != opposite_members_.end())
      if (found->second.first == name) out.push_back(found->second.second);
    if (const Json* rest = find(local, "unevaluatedProperties")) unevaluated.push_back(rest);
    is_evaluated |= is_known;
  }
  if (!is_evaluated)
    for (const Json* rest : unevaluated) out.push_back(whole(rest));
  is_full(set.locals.size());
  return out;
}

// The members that properties and required name, in this order.
std::vector<SchemaCompiler::Member> SchemaCompiler::members(const Flat& set) {
  std::vector<Member> out;
  std::unordered_map<std::string, size_t> places;
  const auto place = [&](const std::string& name) {
    const auto [at, is_new] = places.emplace(name, out.size());
    if (is_new) out.push_back({.name = name});
    return at->second;
  };
  for (const Json* local : set.locals)
    if (const Json* listed = find(local, "properties"))
      for (const auto& [name, schema] : listed->items()) place(name);
  for (const Json* local : set.locals) {
    const Json* required = find(local, "required");
    if (required && required->is_array())
      for (const auto& name : *required) out[place(name.get_ref<const std::string&>())].is_required = true;
  }
  for (Member& member : out) member.items = member_items(member.name, set);
  return out;
}

// True if members that the schema does not list are left out although it does not forbid them.
bool SchemaCompiler::is_closed(const Flat& set, size_t listed) const {
  if (is_exact_) return false;
  bool has_members = false;
  for (const Json* local : set.locals) {
    if (is_own(local)) continue;
    if (find(local, "additionalProperties") || find(local, "unevaluatedProperties")) return false;
    const Json *members = find(local, "properties"), *patterns = find(local, "patternProperties");
    has_members |= (members && !members->empty()) || (patterns && !patterns->empty());
    if (const Json* least = find(local, "minProperties"); least && count_of(*least) > int64_t(listed)) return false;
  }
  return has_members;
}

// The names of members that are not listed: propertyNames without the listed ones. nullopt: any name.
std::optional<Automaton> SchemaCompiler::other_names(const Flat& set, const std::vector<Member>& listed) {
  std::optional<Automaton> out;
  for (const Json* local : set.locals) {
    const Json* names = find(local, "propertyNames");
    if (!names) continue;
    const Flat own_set = flatten({whole(names)});
    std::optional<Automaton> one;
    if (own_set.is_dead || !(types_of(own_set) & text)) {
      one = Automaton();
    } else {
      std::optional<std::vector<std::string>> values;
      for (const Json* part : own_set.locals) {
        const Json *only = find(part, "const"), *list = find(part, "enum");
        if (!only && !list) continue;
        values.emplace();
        for (const auto& v : only ? Json::array({*only}) : *list)
          if (v.is_string() && fits(v, whole(names))) values->push_back(v);
        break;
      }
      one = values ? Automaton::of_strings(*values) : strings(own_set);
      bool counts = false;
      for (const Json* part : own_set.locals) counts |= find(part, "minLength") || find(part, "maxLength");
      if (!one && counts) {
        const auto any = EcmaPattern::parse("");
        automata_.try_emplace("", Automaton::of(*any));
        Flat with_any = own_set;
        with_any.locals.push_back(own({{"pattern", ""}}, names));
        one = strings(with_any);
      }
      if (!own_set.choices.empty() && !values) relax(local, "propertyNames");
      if (values && !one) relax(local, "propertyNames");
    }
    if (one && out) one = out->intersect(*one, &budget_);
    if (one) out = std::move(one);
  }
  if (listed.empty()) return out;
  std::vector<std::string> known;
  for (const Member& member : listed) known.push_back(member.name);
  auto others = Automaton::of_strings(known);
  if (others) others = others->complement();
  if (others && out) others = out->intersect(*others, &budget_);
  if (!others) {
    for (const Json* local : set.locals)
      if (find(local, "properties")) relax(local, "properties");
    return out;
  }
  return others;
}

// A rule of one member that is not listed; it matches nothing if there can be none.
int32_t SchemaCompiler::other_members(const Flat& set, const std::vector<Member>& listed, bool is_closed) {
  const int32_t rule = rules_.add();
  std::vector<std::pair<std::string, const Json*>> patterns;  // and the schema they are in
  for (const Json* local : set.locals) {
    const Json* given = find(local, "patternProperties");
    if (!given) continue;
    for (const auto& [key, schema] : given->items()) patterns.emplace_back(key, local);
  }
  const auto put = [&](const std::optional<Automaton>& names, const Items& items) {
    if (names && names->empty()) return;
    RuleParts parts;
    if (names && !is_full(names->states()))
      parts = {Rules::text("\"\\\"\""), Rules::use(rules_.add(*names, true)), Rules::text("\"\\\"\"")};
    else
      parts = {Rules::text("string")};
    parts.push_back(Rules::text("\":\" space"));
    parts.push_back(Rules::use(rule_of(items)));
    rules_.put(rule, std::move(parts));
  };
  const bool can_be_none = !patterns.empty() || !is_closed;
  if (!can_be_none) return rule;
  // Names are divided by the patterns that match them.
  std::vector<const Automaton*> automata;
  for (const auto& [key, local] : patterns) automata.push_back(pattern_automaton(key));
  const std::optional<Automaton> names = other_names(set, listed);
  const bool has_all = std::find(automata.begin(), automata.end(), nullptr) == automata.end();
  if (patterns.size() > kMostPatterns || !has_all) {
    for (const auto& [key, local] : patterns) relax(local, "patternProperties");
    put(names, {});
    return rule;
  }
  for (unsigned matched = 0; matched < (1u << patterns.size()); ++matched) {
    std::optional<Automaton> part = names;
    bool is_relaxed = false;
    for (size_t i = 0; i < patterns.size() && !is_relaxed; ++i) {
      std::optional<Automaton> one = *automata[i];
      if (!(matched >> i & 1)) one = one->complement();
      if (one && part) one = part->intersect(*one, &budget_);
      is_relaxed = !one;
      part = std::move(one);
    }
    if (is_relaxed) {
      relax(patterns[0].second, "patternProperties");
      continue;
    }
    if (part && part->empty()) continue;
    if (matched == 0 && is_closed) continue;
    Items items;
    for (const Json* local : set.locals) {
      bool is_known = false;
      const Json* given = find(local, "patternProperties");
      for (size_t i = 0; given && i < patterns.size(); ++i) {
        if (patterns[i].second != local || !(matched >> i & 1)) continue;
        items.push_back(whole(&*given->find(patterns[i].first)));
        is_known = true;
      }
      const Json* others = find(local, "additionalProperties");
      const Json* rest = find(local, "unevaluatedProperties");
      if (!is_known && others) items.push_back(whole(others));
      if (matched == 0 && rest && std::none_of(set.locals.begin(), set.locals.end(), [&](const Json* l) {
            return find(l, "additionalProperties") != nullptr;
          }))
        items.push_back(whole(rest));
    }
    put(part, items);
  }
  return rule;
}

void SchemaCompiler::put_object(int32_t rule, const Flat& set, bool is_one) {
  int64_t least = 0, most = -1;
  const Json* holder = set.locals.empty() ? nullptr : set.locals[0];
  for (const Json* local : set.locals) {
    const Json *low = find(local, "minProperties"), *high = find(local, "maxProperties");
    if (low) least = std::max(least, count_of(*low));
    if (high) most = most < 0 ? count_of(*high) : std::min(most, count_of(*high));
    if (low || high) holder = local;
    // Only in a set made from one schema, its parts are those of the subschema that comes first.
    if (find(local, "unevaluatedProperties") && (!is_one || local != set.locals[0]))
      relax(local, "unevaluatedProperties");
  }
  if (most >= 0 && most < least) return;
  std::vector<Member> listed = members(set);
  if (listed.size() > kMostMembers) {
    for (const Json* local : set.locals)
      if (find(local, "properties") || find(local, "required")) relax(local, "properties");
    rules_.put(rule, {Rules::text("object")});
    return;
  }
  const int32_t others = other_members(set, listed, is_closed(set, listed.size()));
  const int32_t inside = rules_.add();
  put_members(inside, listed, others, least, most, holder);
  rules_.put(rule, {Rules::text("\"{\" space"), Rules::use(inside), Rules::text("space \"}\"")});
}

// Rules by the next member and the number written so far, from the last member to the first. If nothing is counted, the
// number is 0 or 1: a comma comes before all members but the first.
void SchemaCompiler::put_members(int32_t rule, const std::vector<Member>& listed, int32_t others, int64_t least,
                                 int64_t most, const Json* holder) {
  const auto count = std::ssize(listed);
  const int64_t top = std::max<int64_t>({1, least, most});
  // Members that are not listed are counted by repetitions, so the listed ones decide the size.
  const int64_t counted = std::min<int64_t>(top, count + 1);
  if (counted * (count + 1) > kMostCounts || top > kMostItems) {
    relax(holder, most >= 0 ? "maxProperties" : "minProperties");
    return put_members(rule, listed, others, 0, -1, holder);
  }
  const bool counts = least > 1 || most >= 0;
  const int64_t last = counts ? std::max<int64_t>(count, 1) : 1;
  std::vector<int32_t> after(size_t(last + 1)), here(size_t(last + 1));
  const int32_t with_comma = rules_.add({{comma(), Rules::use(others)}});
  for (int64_t c = 0; c <= last; ++c) {
    after[size_t(c)] = rules_.add();
    const int64_t low = std::max<int64_t>(0, least - c), high = most < 0 ? -1 : most - c;
    if (most >= 0 && high < 0) continue;
    if (c > 0 || low == 0) {
      RuleParts parts;
      if (c > 0)
        parts = {Rules::use(with_comma, low, high)};
      else
        parts = {Rules::text("\"\"")};
      rules_.put(after[size_t(c)], std::move(parts));
    }
    if (c == 0 && high != 0)
      rules_.put(after[0],
                 {Rules::use(others), Rules::use(with_comma, std::max<int64_t>(0, low - 1), high < 0 ? -1 : high - 1)});
  }
  for (int64_t i = count; i-- > 0;) {
    const Member& member = listed[size_t(i)];
    const int32_t one = rules_.add(
        {{Rules::text(grammar_literal(Json(member.name).dump()) + " \":\" space"), Rules::use(rule_of(member.items))}});
    for (int64_t c = 0; c <= std::min(i, last); ++c) {
      here[size_t(c)] = rules_.add();
      if (most < 0 || c < most) {
        RuleParts parts;
        if (c > 0) parts.push_back(comma());
        parts.push_back(Rules::use(one));
        parts.push_back(Rules::use(after[size_t(std::min(c + 1, last))]));
        rules_.put(here[size_t(c)], std::move(parts));
      }
      if (!member.is_required) rules_.put(here[size_t(c)], {Rules::use(after[size_t(c)])});
    }
    after = here;
  }
  rules_.put(rule, {Rules::use(after[0])});
}

// The schemas of the item at a place. *is_last: those of all items from here on are the same.
SchemaCompiler::Items SchemaCompiler::item_schemas(const Flat& set, size_t at, bool* is_last) {
  Items out;
  std::vector<const Json*> unevaluated;
  bool is_evaluated = false;
  *is_last = true;
  for (const Json* local : set.locals) {
    const Json *items = find(local, "items"), *prefix = find(local, "prefixItems");
    if (!prefix && items && items->is_array()) {
      prefix = items;
      items = find(local, "additionalItems");
    } else if (items && items->is_array()) {
      items = nullptr;
    }
    if (prefix && at < prefix->size()) {
      *is_last = false;
      items = &(*prefix)[at];
    }
    if (items) out.push_back(whole(items));
    is_evaluated |= items != nullptr;
    if (const Json* rest = find(local, "unevaluatedItems")) unevaluated.push_back(rest);
  }
  if (!is_evaluated)
    for (const Json* rest : unevaluated) out.push_back(whole(rest));
  return out;
}

void SchemaCompiler::put_array(int32_t rule, const Flat& set, bool is_one) {
  int64_t least = 0, most = -1;
  bool has_least = false, is_unique = false, has_items = false;
  const Json *unique = nullptr, *contains = nullptr;
  for (const Json* local : set.locals) {
    const Json *low = find(local, "minItems"), *high = find(local, "maxItems"), *items = find(local, "items");
    has_least |= low != nullptr;
    if (low) least = std::max(least, count_of(*low));
    if (high) most = most < 0 ? count_of(*high) : std::min(most, count_of(*high));
    has_items |= (items && !items->is_array()) || find(local, "additionalItems") || find(local, "unevaluatedItems");
    if (const Json* v = find(local, "uniqueItems"); v && *v == true) unique = local;
    if (find(local, "contains")) {
      if (contains) relax(local, "contains");
      contains = local;
    }
    if (find(local, "unevaluatedItems") && (!is_one || local != set.locals[0] || find(local, "contains")))
      relax(local, "unevaluatedItems");
  }
  is_unique = unique && most != 0 && most != 1;
  std::vector<Items> first;
  bool is_last = false;
  Items rest = item_schemas(set, 0, &is_last);
  while (!is_last && first.size() < kMostMembers) {
    first.push_back(std::move(rest));
    rest = item_schemas(set, first.size(), &is_last);
  }
  const auto listed = std::ssize(first);
  if (!is_exact_ && listed > 0) {
    // Arrays have all the items that the schema lists, and no others, unless it says something else.
    if (!has_least && (most < 0 || most >= listed)) least = listed;
    if (!has_items && most < 0 && least <= listed) rest = {whole(&kNever)};
  }
  if (least > kMostItems) {
    relax(set.locals[0], "minItems");
    least = kMostItems;
  }
  if (most > kMostItems) {
    relax(set.locals[0], "maxItems");
    most = -1;
  }
  if (most >= 0 && most < least) return;
  const int32_t inside = rules_.add();
  rules_.put(rule, {Rules::text("\"[\" space"), Rules::use(inside), Rules::text("space \"]\"")});
  if (is_unique && !contains && listed == 0 && put_unique(inside, rest, least, most)) return;
  if (is_unique) relax(unique, "uniqueItems");
  if (contains && put_contains(inside, first, rest, least, most, contains)) return;
  if (contains) relax(contains, "contains");
  put_items(inside, first, rest, least, most);
}

void SchemaCompiler::put_items(int32_t rule, const std::vector<Items>& first, const Items& rest, int64_t least,
                               int64_t most) {
  const int32_t item = rule_of(rest);
  const auto listed = std::ssize(first);
  const int32_t more = rules_.add({{comma(), Rules::use(item)}});
  if (listed == 0) {
    if (least == 0) rules_.put(rule, {Rules::text("\"\"")});
    if (most != 0)
      rules_.put(rule, {Rules::use(item), Rules::use(more, std::max<int64_t>(0, least - 1), most < 0 ? -1 : most - 1)});
    return;
  }
  // From the last listed item to the first.
  int32_t after = rules_.add();
  if (most < 0 || most >= listed)
    rules_.put(after, {Rules::use(more, std::max<int64_t>(0, least - listed), most < 0 ? -1 : most - listed)});
  for (int64_t i = listed; i-- > 0;) {
    const int32_t here = i == 0 ? rule : rules_.add();
    if (i >= least) rules_.put(here, {Rules::text("\"\"")});
    if (most < 0 || i < most) {
      RuleParts parts;
      if (i > 0) parts.push_back(comma());
      parts.push_back(Rules::use(rule_of(first[size_t(i)])));
      parts.push_back(Rules::use(after));
      rules_.put(here, std::move(parts));
    }
    after = here;
  }
}

// Items of a short enumeration, each at most once: a rule for each set of values written so far.
bool SchemaCompiler::put_unique(int32_t rule, const Items& item, int64_t least, int64_t most) {
  const Flat set = flatten(item);
  const Json* list = nullptr;
  for (const Json* local : set.locals)
    if (!list) list = find(local, "enum");
  if (!list || list->size() > kMostUnique) return false;
  std::vector<Json> values;
  for (const auto& v : *list) {
    const bool is_known =
        std::any_of(values.begin(), values.end(), [&](const Json& other) { return are_equal(v, other); });
    if (!is_known && std::all_of(item.begin(), item.end(), [&](const Item& one) { return fits(v, one); }))
      values.push_back(v);
  }
  std::vector<int32_t> literals;
  for (const Json& v : values) {
    const int32_t one = rules_.add();
    const Json* only = own({{"const", v}}, set.locals[0]);
    rules_.put(one, {Rules::use(rule_of({whole(only)}))});
    literals.push_back(one);
  }
  std::vector<int32_t> states(size_t{1} << values.size());
  for (size_t s = 0; s < states.size(); ++s) states[s] = s == 0 ? rule : rules_.add();
  for (size_t s = 0; s < states.size(); ++s) {
    const auto count = int64_t(std::popcount(s));
    if (count >= least) rules_.put(states[s], {Rules::text("\"\"")});
    if (most >= 0 && count >= most) continue;
    for (size_t v = 0; v < values.size(); ++v) {
      if (s >> v & 1) continue;
      RuleParts parts;
      if (s > 0) parts.push_back(comma());
      parts.push_back(Rules::use(literals[v]));
      parts.push_back(Rules::use(states[s | size_t{1} << v]));
      rules_.put(states[s], std::move(parts));
    }
  }
  return true;
}

// A rule for each place and number of matching items so far. Where a maximum is given, other items must not match.
bool SchemaCompiler::put_contains(int32_t rule, const std::vector<Items>& first, const Items& rest, int64_t least,
                                  int64_t most, const Json* holder) {
  const Json *schema = find(holder, "contains"), *low = find(holder, "minContains"),
             *high = find(holder, "maxContains");
  const int64_t needed = low ? count_of(*low) : 1, limit = high ? count_of(*high) : -1;
  if (limit >= 0 && limit < needed) return true;
  if (limit >= 0 && !negate(schema, 0)) return false;
  // Places after `last` are alike, if there is no maximum.
  const int64_t last = std::max({std::ssize(first), least, most, int64_t{1}}),
                top = std::max<int64_t>({needed, limit, 0});
  if ((last + 1) > kMostCounts || (top + 1) > kMostCounts || (last + 1) * (top + 1) > kMostCounts) return false;
  std::vector<int32_t> states(size_t((last + 1) * (top + 1)));
  for (size_t s = 0; s < states.size(); ++s) states[s] = s == 0 ? rule : rules_.add();
  const auto state = [&](int64_t i, int64_t c) { return states[size_t(i * (top + 1) + c)]; };
  for (int64_t i = 0; i <= last; ++i) {
    const Items& items = i < std::ssize(first) ? first[size_t(i)] : rest;
    Items matching = items, other = items;
    matching.push_back(whole(schema));
    if (limit >= 0) other.push_back({Item::Kind::negated, schema, 0});
    const int32_t one = rule_of(matching), no = rule_of(other);
    const int64_t next = std::min(i + 1, last);
    for (int64_t c = 0; c <= top; ++c) {
      if (i >= least && c >= needed) rules_.put(state(i, c), {Rules::text("\"\"")});
      if (most >= 0 && i >= most) continue;
      const auto put = [&](int32_t item, int64_t then) {
        RuleParts parts;
        if (i > 0) parts.push_back(comma());
        parts.push_back(Rules::use(item));
        parts.push_back(Rules::use(state(next, then)));
        rules_.put(state(i, c), std::move(parts));
      };
      put(no, c);
      if (limit < 0 ? c < top : c < limit) put(one, c + 1);
    }
  }
  return true;
}

}  // namespace lumen::model::infer
