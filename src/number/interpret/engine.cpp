// Construction and caching of engines. Proved by tests/number/codec_test.cpp.
#include "number/interpret/engine.h"

#include <map>
#include <mutex>

namespace lumen::interpret {
namespace {

constexpr size_t kMaxShared = 256;

}  // namespace

void collect_assigned(const std::vector<RoutineStmt>& body, std::vector<bool>& fields) {
  for (const RoutineStmt& s : body) {
    if (s.kind == RoutineStmt::Kind::set_field) fields[s.slot] = true;
    collect_assigned(s.body, fields);
    collect_assigned(s.otherwise, fields);
  }
}

Engine::Engine(FormatRef f) : format(std::move(f)), plan(*format) {
  auto program = [&](const Routine& r) { return std::make_unique<Program>(*format, r, plan); };
  decode = program(format->decode);
  if (format->code) code = program(*format->code);
  for (size_t level = 0; level < kLevels; ++level) {
    assigned[level].assign(format->fields.size(), false);
    weighted_assigned[level].assign(format->fields.size(), false);
    if (format->fit[level]) {
      fit[level] = program(*format->fit[level]);
      collect_assigned(format->fit[level]->body, assigned[level]);
    }
    if (format->weighted_fit[level]) {
      weighted_fit[level] = program(*format->weighted_fit[level]);
      collect_assigned(format->weighted_fit[level]->body, weighted_assigned[level]);
    }
    records.emplace_back(*format, static_cast<Level>(level), plan);
  }
  fresh.assign(plan.size, Cell{});
  for (size_t t = 0; t < format->tables.size(); ++t) {
    const FormatTable& table = format->tables[t];
    for (size_t k = 0; k < table.values.size(); ++k) {
      Cell& cell = fresh[plan.table[t] + k];
      if (is_float(table.type)) {
        cell.real = static_cast<float>(table.values[k]);
      } else {
        cell.whole = static_cast<int64_t>(table.values[k]);
      }
    }
  }
  auto prepare = [&](const std::unique_ptr<Program>& p) {
    if (p) p->prepare(fresh.data());
  };
  prepare(decode);
  prepare(code);
  for (size_t level = 0; level < kLevels; ++level) {
    prepare(fit[level]);
    prepare(weighted_fit[level]);
  }
}

std::shared_ptr<const Engine> engine_of(const Format& f) {
  static std::mutex mutex;
  static std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<const Engine>> engines;
  if (f.hash == Hash{})
    return std::make_shared<const Engine>(std::make_shared<Format>(f));  // constructed in code: no hash to share it by
  const auto key = std::make_pair(f.hash.low, f.hash.high);
  const std::lock_guard lock(mutex);
  const auto found = engines.find(key);
  if (found != engines.end()) return found->second;
  if (engines.size() >= kMaxShared) engines.clear();
  auto engine = std::make_shared<const Engine>(std::make_shared<Format>(f));
  engines.emplace(key, engine);
  return engine;
}

}  // namespace lumen::interpret
