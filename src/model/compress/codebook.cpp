#include "model/compress/codebook.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "base/check.h"
#include "lang/parser.h"
#include "number/library/library.h"

namespace lumen::model::compress {
namespace {

using Tables = std::map<std::string, std::vector<double>>;  // values by name

void collect_tables(const Format& f, const RoutineExpr& e, std::set<std::string>* names) {
  if (e.kind == RoutineExpr::Kind::table) names->insert(f.tables[e.slot].name);
  for (const RoutineExpr& a : e.args) collect_tables(f, a, names);
}

void collect_tables(const Format& f, const std::vector<RoutineStmt>& body, std::set<std::string>* names) {
  for (const RoutineStmt& s : body) {
    for (const RoutineExpr* e : {&s.value, &s.index, &s.from, &s.to}) collect_tables(f, *e, names);
    collect_tables(f, s.body, names);
    collect_tables(f, s.otherwise, names);
  }
}

std::set<std::string> tables_of_decode(const Format& f) {
  std::set<std::string> names;
  collect_tables(f, f.decode.body, &names);
  collect_tables(f, f.decode.result, &names);
  return names;
}

// The values that a table's type can hold.
struct EntryType {
  bool whole = false;
  double low = 0, high = 0;
};

EntryType entry_type(const lang::Table& t) {
  const Scalar s = *scalar_from_name(t.type.name);
  if (is_float(s)) return {};
  const double top = std::ldexp(1.0, scalar_bits(s) - (is_signed(s) ? 1 : 0)) - 1;
  return {true, is_signed(s) ? -top : 0, top};  // symmetric, as scales are
}

SourceRef source_of(std::string text) {
  return std::make_shared<Source>(Source{"trained tables", std::move(text)});
}

lang::ExprPtr number(double value, bool whole) {
  return lang::parse_expression(
      source_of(whole ? fmt::format("{}", std::llround(value)) : fmt::format("{:.9g}", static_cast<float>(value))));
}

// A format's definition as a syntax tree, to be copied with other table values under another name.
class Definition {
 public:
  explicit Definition(const Format& f) : name_(f.name), file_(lang::parse_file(source_of(f.source_text))) {
    LUMEN_CHECK(file_.formats.size() == 1, "{} definitions in the text of {}", file_.formats.size(), f.name);
  }

  const lang::Table& table(const std::string& name) const {
    const auto found = std::ranges::find(file_.tables, name, &lang::Table::name);
    LUMEN_CHECK(found != file_.tables.end(), "no table {} in the text of {}", name, name_);
    return *found;
  }

  // Whether the text defines this table: the format reader makes some tables itself.
  bool has(const std::string& name) const {
    return std::ranges::find(file_.tables, name, &lang::Table::name) != file_.tables.end();
  }

  FormatRef with(const Tables& values) const { return make(values, name_, true); }
  // With a decoder only: the values may not suit the encoder's search.
  FormatRef decoder(const Tables& values) const { return make(values, name_, false); }

  FormatRef named_by_values(const Tables& values) const {
    std::string text;
    for (const auto& [table, entries] : values)
      for (const double v : entries) text += fmt::format("{} ", v);
    return make(values, fmt::format("{}_{}", name_, hash_text(text).hex().substr(0, 8)), true);
  }

 private:
  FormatRef make(const Tables& values, const std::string& name, bool encodes) const {
    lang::File file = file_;
    for (lang::Table& t : file.tables) {
      const auto found = values.find(t.name);
      if (found == values.end()) continue;
      const bool whole = entry_type(t).whole;
      t.values.clear();
      for (const double v : found->second) t.values.push_back(number(v, whole));
    }
    lang::FormatDecl& d = file.formats[0];
    (file.aliases.empty() ? d.name : file.aliases[0].name) = name;
    const auto is_id = [](const lang::Attribute& a) {
      return a.name == "gguf" || a.name == "gguf_file" || a.name == "safetensors";
    };
    std::erase_if(d.attributes, is_id);
    if (!file.aliases.empty()) std::erase_if(file.aliases[0].attributes, is_id);
    if (!encodes) std::erase_if(d.routines, [](const lang::Function& r) { return r.name != "decode"; });
    FormatLibrary library;
    library.add(lang::parse_file(source_of(lang::print_file(file))));
    return library.get(name);
  }

  std::string name_;
  lang::File file_;
};

// decode is factor * table[entry] + rest for each element; factor 0 for elements that do not use the table.
struct Factors {
  std::vector<float> factor, rest;
  std::vector<int32_t> entry;
};

class Trainer {
 public:
  Trainer(run::Engine& engine, const FormatRef& f, std::span<const float> x, std::span<const float> importance)
      : engine_(engine), x_(x), importance_(importance), definition_(*f) {
    for (const FormatTable& t : f->tables)
      if (definition_.has(t.name)) all_[t.name] = t.values;
    for (size_t i = 0; i < x.size(); ++i) squares_ += weight(i) * x[i] * x[i];
  }

  TrainedTables run(const Format& f, const TableTraining& training) {
    TrainedTables out;
    std::vector<uint8_t> codes = encode(*definition_.with({}));
    for (const std::string& name : tables_of_decode(f))
      if (definition_.has(name) && factors(codes, name)) out.tables.push_back(name);
    if (out.tables.empty() || squares_ == 0) return out;
    out.before = out.after = error(codes);
    Tables best;
    for (int slow = 0; out.rounds < training.rounds && slow < 3;) {
      ++out.rounds;
      for (const std::string& name : out.tables)
        if (const auto found = factors(codes, name)) all_[name] = solve(name, *found);
      codes = encode(*definition_.with(all_));
      const double now = error(codes);
      slow = now < out.after * (1 - training.least_gain) ? 0 : slow + 1;
      if (now >= out.after) continue;
      out.after = now;
      best.clear();
      for (const std::string& name : out.tables) best[name] = all_[name];
    }
    if (!best.empty()) out.format = definition_.named_by_values(best);
    return out;
  }

 private:
  double weight(size_t i) const { return importance_.empty() ? 1 : importance_[i]; }

  std::vector<uint8_t> encode(const Format& f) {
    return engine_.encode(std::make_shared<Format>(f), x_.data(), 1, std::ssize(x_), importance_);
  }
  std::vector<float> decode(const std::vector<uint8_t>& codes, const Tables& tables) {
    return engine_.decode(definition_.decoder(tables), codes.data(), 1, std::ssize(x_));
  }

  // Relative error with the current tables.
  double error(const std::vector<uint8_t>& codes) {
    const std::vector<float> y = decode(codes, all_);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const double value = x_[i], e = value - y[i];
      sum += weight(i) * e * e;
    }
    return sum / squares_;
  }

  // nullopt where decode is not linear in the table: then random entries do not decode as predicted.
  std::optional<Factors> factors(const std::vector<uint8_t>& codes, const std::string& table) {
    constexpr int kDigit = 64;  // entry indices pass through the table digit by digit
    const size_t count = all_[table].size();
    const auto decoded = [&](const std::function<double(int64_t)>& value) {
      Tables tables = all_;
      for (size_t k = 0; k < count; ++k) tables[table][k] = value(k);
      return decode(codes, tables);
    };
    Factors out;
    out.rest = decoded([](int64_t) { return 0; });
    out.factor = decoded([](int64_t) { return 1; });
    for (size_t i = 0; i < out.rest.size(); ++i) out.factor[i] -= out.rest[i];
    out.entry.assign(out.rest.size(), 0);
    for (int step = 1; step < std::ssize(all_[table]); step *= kDigit) {
      const std::vector<float> digits = decoded([&](int64_t k) { return k / step % kDigit; });
      for (size_t i = 0; i < digits.size(); ++i) {
        if (out.factor[i] == 0) continue;
        const double a = out.factor[i], digit = (digits[i] - out.rest[i]) / a;
        out.entry[i] += step * std::lrint(std::clamp<double>(digit, 0, kDigit - 1));
      }
    }
    std::minstd_rand random(1);
    std::vector<int> drawn(count);
    for (int& v : drawn) v = random() % 100;
    const std::vector<float> got = decoded([&](int64_t k) { return drawn[k]; });
    bool used = false;
    for (size_t i = 0; i < got.size(); ++i) {
      if (out.entry[i] >= std::ssize(drawn)) return std::nullopt;
      const double a = out.factor[i], want = a * drawn[out.entry[i]] + out.rest[i];
      if (!(std::fabs(got[i] - want) <= 1e-3 * std::fabs(a) + 1e-5 * std::fabs(out.rest[i]))) return std::nullopt;
      used = used || a != 0;
    }
    return used ? std::optional(std::move(out)) : std::nullopt;
  }

  // Length of ascending runs of entries that a search may rely on: the whole table, or several runs of equal length;
  // else none.
  static int64_t rising_run(const std::vector<double>& entries) {
    int64_t run = 1;
    while (run < std::ssize(entries) && entries[run] > entries[run - 1]) ++run;
    if (run < 4 || std::ssize(entries) % run != 0) return run == std::ssize(entries) ? run : 0;
    for (int64_t i = 0; i < std::ssize(entries); ++i)
      if (i > 0 && (i % run == 0) == (entries[i] > entries[i - 1])) return 0;
    return run;
  }

  std::vector<double> solve(const std::string& table, const Factors& f) {
    const std::vector<double>& old = all_[table];
    std::vector<double> up(old.size()), down(old.size());
    for (size_t i = 0; i < x_.size(); ++i) {
      const double a = f.factor[i];
      const double value = x_[i];
      up[f.entry[i]] += weight(i) * a * (value - f.rest[i]);
      down[f.entry[i]] += weight(i) * a * a;
    }
    std::vector<double> out = old;  // unused entries keep their values
    for (size_t k = 0; k < out.size(); ++k)
      if (down[k] > 0) out[k] = up[k] / down[k];
    const int64_t run = rising_run(old);
    const int64_t part = run > 0 ? run : std::ssize(old);
    const EntryType type = entry_type(definition_.table(table));
    for (auto first = out.begin(); first < out.end(); first += part) {
      if (run > 0) std::sort(first, first + part);
      if (type.whole) round(first, first + part, old.begin() + (first - out.begin()), type);
    }
    if (!type.whole)
      for (double& v : out) v = static_cast<float>(v);
    return out;
  }

  // Rounds to whole numbers at the same magnitude: the entry of the largest magnitude keeps its value, because scales
  // are derived from it.
  using Entries = std::vector<double>::iterator;
  static void round(Entries first, Entries last, std::vector<double>::const_iterator old, const EntryType& type) {
    const auto smaller = [](double a, double b) { return std::fabs(a) < std::fabs(b); };
    const int64_t top = std::max_element(old, old + (last - first), smaller) - old;
    const double by = first[top] * old[top] > 0 ? old[top] / first[top] : 1;
    for (Entries v = first; v < last; ++v) *v = std::clamp(std::nearbyint(*v * by), type.low, type.high);
  }

  run::Engine& engine_;
  std::span<const float> x_, importance_;
  Definition definition_;
  Tables all_;
  double squares_ = 0;
};

}  // namespace

bool may_train_tables(const Format& f) {
  return f.encodes() && f.row_bytes + f.tile_bytes + f.tensor_bytes == 0 && !tables_of_decode(f).empty();
}

TrainedTables train_tables(run::Engine& engine, const FormatRef& f, std::span<const float> x,
                           std::span<const float> importance, const TableTraining& training) {
  LUMEN_CHECK(may_train_tables(*f), "{} has no tables to be trained", f->name);
  LUMEN_CHECK(!x.empty() && std::ssize(x) % f->block == 0, "{} values are no whole blocks of {}", x.size(), f->name);
  LUMEN_CHECK(importance.empty() || importance.size() == x.size(), "importance of {} values", importance.size());
  return Trainer(engine, f, x, importance).run(*f, training);
}

std::string TrainedTables::text(const Format& from) const {
  if (tables.empty()) return fmt::format("{}: values are not linear in a table; nothing to train", from.name);
  const std::string errors = fmt::format("{:.5f} -> {:.5f} in {} rounds", std::sqrt(before), std::sqrt(after), rounds);
  if (!format) return fmt::format("{}: its tables are as good as those that were tried ({})", from.name, errors);
  return fmt::format("{} -> {}: relative error of the sample {}", from.name, format->name, errors);
}

}  // namespace lumen::model::compress
