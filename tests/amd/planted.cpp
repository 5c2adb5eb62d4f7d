// See planted.h.
#include "tests/amd/planted.h"

#include <algorithm>

#include "tests/amd/decode/operation.h"
#include "tests/amd/fault.h"
#include "tests/amd/wave/wave.h"

namespace lumen::amd {
namespace {

// The instruction as it is lies in `pair`; `number` of the changed one says which fault.
const Instruction& original(const Instruction& i) {
  return i.pair.front();
}
using Lanes = std::array<uint32_t, kMostLanes>;

// Each register of the result, when it has been computed.
template <class Change>
void change_result(Wave& w, const Instruction& i, Change change) {
  const Instruction& as_is = original(i);
  as_is.run(w, as_is);
  const Operand& to = as_is.at[0];
  if (to.kind != Operand::Kind::vector) return;
  for (int r = 0; r < std::max<int>(to.words, 1); ++r) {
    Lanes& lanes = (*w.vector)[static_cast<size_t>(to.first + r)];
    change(lanes, r, w.lanes);
  }
}

template <int kMask>
void run_lanes(Wave& w, const Instruction& i) {
  change_result(w, i, [](Lanes& x, int, int lanes) {
    const Lanes before = x;
    for (size_t l = 0; l < static_cast<size_t>(lanes); ++l) x[l] = before[l ^ static_cast<size_t>(kMask)];
  });
}
void run_registers(Wave& w, const Instruction& i) {
  const Instruction& as_is = original(i);
  as_is.run(w, as_is);
  const Operand& to = as_is.at[0];
  if (to.kind == Operand::Kind::vector && to.words >= 2)
    std::swap((*w.vector)[to.first], (*w.vector)[static_cast<size_t>(to.first + 1)]);
}
void run_off(Wave& w, const Instruction& i) {
  change_result(w, i, [](Lanes& x, int, int) { x[7] = 0; });
}
// f32 to 16 bits of it, cut.
void run_short(Wave& w, const Instruction& i) {
  change_result(w, i, [](Lanes& x, int, int lanes) {
    for (size_t l = 0; l < static_cast<size_t>(lanes); ++l) x[l] &= 0xffff0000;
  });
}
void run_last_bit(Wave& w, const Instruction& i) {
  change_result(w, i, [](Lanes& x, int, int lanes) {
    for (size_t l = 0; l < static_cast<size_t>(lanes); ++l) x[l] ^= 1;
  });
}
// One element of a factor counts nothing: the lowest 8 bits that lane 5 gives (16 bits of halves).
void run_dropped(Wave& w, const Instruction& i) {
  const Instruction& as_is = original(i);
  const Operand& from = as_is.at[1];
  if (from.kind != Operand::Kind::vector) return as_is.run(w, as_is);
  uint32_t& word = (*w.vector)[from.first][5];
  const uint32_t before = word;
  word &= as_is.text.find("f32_16x16x4_f32") != std::string::npos || as_is.text.find("x2_f32") != std::string::npos ? 0U
          : as_is.text.find("16") != std::string::npos && as_is.text.find("fp8") == std::string::npos &&
                  as_is.text.find("i8") == std::string::npos
              ? 0xffff0000U
              : 0xffffff00U;
  as_is.run(w, as_is);
  // The result may lie where the factor did.
  const Operand& to = as_is.at[0];
  if (from.first < to.first || from.first >= to.first + std::max<int>(to.words, 1)) word = before;
}
void run_nothing(Wave&, const Instruction&) {}

void wrap(Instruction* i, Run run) {
  Instruction as_is = *i;
  i->pair = {std::move(as_is)};
  i->run = run;
}

// The operation of the same name with other codes, or of the other generation's.
void other_code(const Chip& chip, Instruction* i, bool generation) {
  std::string name = i->text.substr(0, i->text.find(' '));
  for (const char* suffix : {"_e64", "_e32", "_dpp", "_sdwa"})
    if (name.ends_with(suffix)) name.resize(name.size() - std::string_view(suffix).size());
  const Chip* from = &chip;
  if (generation) {
    from = find_chip(chip.fnuz ? "gfx950" : "gfx942");
  } else {
    for (size_t at = name.find("p8"); at != std::string::npos && at > 0; at = name.find("p8", at + 2))
      if (name[at - 1] == 'f') name.replace(at - 1, 3, "bf8");
  }
  const auto found = operations(*from).find(name);
  if (found == operations(*from).end()) return;
  i->run = found->second.run;
  i->number = found->second.number;
}

const std::vector<PlantedKind> kKinds{
    {"lanes", "neighbouring lanes of the result change places"},
    {"rows", "groups of four lanes of the result change places"},
    {"halves", "groups of sixteen lanes of the result change places"},
    {"registers", "the first two registers of the result change places"},
    {"off", "one lane gives zero"},
    {"short", "the result keeps the upper 16 bits of f32"},
    {"bit", "the lowest bit of the result is turned"},
    {"dropped", "one element of the first factor is zero"},
    {"operands", "the first two sources change places"},
    {"sign", "the second source is negative"},
    {"offset", "memory is four bytes further"},
    {"code", "codes are those with a longer exponent"},
    {"generation", "codes are those of another generation"},
    {"dpp", "lanes come from one place further"},
    {"gone", "nothing is done"},
    {"unwaited", "a wait waits for nothing"},
    {"unloaded", "a wait waits for no load"},
};

bool plant_one(const Chip& chip, std::string_view kind, Instruction* i) {
  const auto wrapped = [&](Run run) { return wrap(i, run), true; };
  if (kind == "lanes") return wrapped(run_lanes<1>);
  if (kind == "rows") return wrapped(run_lanes<4>);
  if (kind == "halves") return wrapped(run_lanes<16>);
  if (kind == "registers") return wrapped(run_registers);
  if (kind == "off") return wrapped(run_off);
  if (kind == "short") return wrapped(run_short);
  if (kind == "bit") return wrapped(run_last_bit);
  if (kind == "dropped") return wrapped(run_dropped);
  if (kind == "gone") return wrapped(run_nothing);
  if (kind == "operands") return std::swap(i->at[1], i->at[2]), true;
  if (kind == "sign") return i->at[2].negative = !i->at[2].negative, true;
  if (kind == "offset") return i->offset += 4, true;
  if (kind == "code" || kind == "generation") return other_code(chip, i, kind == "generation"), true;
  if (kind == "dpp") {
    if (i->dpp.kind == Dpp::Kind::none) return false;
    i->dpp.number ^= 1;
    std::rotate(i->dpp.select.begin(), i->dpp.select.begin() + 1, i->dpp.select.end());
    return true;
  }
  if (kind == "unwaited") {
    for (int& most : i->most) most = -1;
    return true;
  }
  if (kind == "unloaded") {
    const bool waits = i->most[kLoads] >= 0;
    i->most[kLoads] = -1;
    return waits;
  }
  fault("no fault is called '{}'", kind);
}

}  // namespace

const std::vector<PlantedKind>& planted_kinds() {
  return kKinds;
}

int plant(const Chip& chip, const std::string& what, std::vector<Instruction>* code) {
  const size_t space = what.find(' ');
  const std::string kind = what.substr(0, space), words = space == std::string::npos ? "" : what.substr(space + 1);
  int changed = 0;
  for (Instruction& i : *code)
    if (i.text.starts_with(words) && i.pair.empty() && plant_one(chip, kind, &i)) ++changed;
  return changed;
}

}  // namespace lumen::amd
