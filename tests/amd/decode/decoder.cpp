// See decoder.h. The disassembler's C interface is LLVM's only stable one.
#include "tests/amd/decode/decoder.h"

#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>

#include <map>
#include <memory>
#include <mutex>

#include "tests/amd/decode/modifiers.h"
#include "tests/amd/decode/operand_text.h"
#include "tests/amd/decode/operation.h"
#include "tests/amd/fault.h"
#include "tests/amd/wave/wave.h"

namespace lumen::amd {
namespace {

using Shape = Operation::Shape;

void unknown(Wave&, const Instruction&) {
  fault("this instruction is not known to the interpreter");
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// At commas or blanks that stand in no brackets.
std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  int depth = 0;
  size_t begin = 0;
  for (size_t k = 0; k <= text.size(); ++k) {
    const char c = k < text.size() ? text[k] : at;
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c != at || (depth > 0 && k < text.size())) continue;
    const std::string_view piece = trimmed(text.substr(begin, k - begin));
    if (!piece.empty()) out.push_back(piece);
    begin = k + 1;
  }
  return out;
}

// The name without its encoding.
std::string_view plain_name(std::string_view name) {
  for (const std::string_view ending : {"_e32", "_e64_dpp", "_e64", "_sdwa", "_dpp8", "_dpp"})
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return name;
}

bool parse_wait(const Chip& chip, std::string_view name, std::string_view rest, Instruction* i) {
  const auto set = [&](Counter c, int n) {
    int& most = i->most[counter_of(chip, c)];
    most = most < 0 ? n : std::min(most, n);
  };
  int64_t n = 0;
  if (name == "s_waitcnt") {
    for (const std::string_view word : split(rest, ' ')) {
      if (word == "&") continue;
      const size_t open = word.find('(');
      if (open == std::string_view::npos || !word.ends_with(")")) return false;
      const std::string_view which = word.substr(0, open);
      if (!parse_number(word.substr(open + 1, word.size() - open - 2), &n)) return false;
      if (which == "vmcnt")
        set(kLoads, static_cast<int>(n));
      else if (which == "lgkmcnt")
        set(kLds, static_cast<int>(n));
      else if (which != "expcnt")
        return false;
    }
    return true;
  }
  if (rest.starts_with("null, ")) rest.remove_prefix(6);
  if (!parse_number(trimmed(rest), &n)) return false;
  const int low = static_cast<int>(n & 0x3f), high = static_cast<int>(n >> 8 & 0x3f);
  if (name == "s_waitcnt_vscnt" || name == "s_wait_storecnt")
    set(kStores, static_cast<int>(n));
  else if (name == "s_waitcnt_vmcnt" || name == "s_wait_loadcnt")
    set(kLoads, static_cast<int>(n));
  else if (name == "s_waitcnt_lgkmcnt" || name == "s_wait_dscnt")
    set(kLds, static_cast<int>(n));
  else if (name == "s_wait_kmcnt")
    set(kScalarMemory, static_cast<int>(n));
  else if (name == "s_wait_loadcnt_dscnt")
    set(kLoads, high), set(kLds, low);
  else if (name == "s_wait_storecnt_dscnt")
    set(kStores, high), set(kLds, low);
  return true;
}

// "hwreg(HW_REG_MODE, 4, 2)": first bit, how many.
bool parse_mode(std::string_view text, Instruction* i) {
  if (!text.starts_with("hwreg(") || !text.ends_with(")")) return false;
  const auto parts = split(text.substr(6, text.size() - 7), ',');
  if (parts.empty() || parts[0] != "HW_REG_MODE") return false;
  i->offset = 0, i->offset1 = 32;
  return parts.size() == 1 ||
         (parts.size() == 3 && parse_number(parts[1], &i->offset) && parse_number(parts[2], &i->offset1));
}

void note_registers(const Operation& op, Instruction* i) {
  int results = op.results;
  if (i->text.find("_atomic_") != std::string::npos) results = i->gives_back ? 1 : 0;
  for (int n = 0; n < i->operands; ++n) {
    const Operand& o = i->at[static_cast<size_t>(n)];
    if (o.kind != Operand::Kind::vector && o.kind != Operand::Kind::scalar) continue;
    const bool vector = o.kind == Operand::Kind::vector;
    const Span s{o.first, o.words};
    if (n < results) (vector ? i->vector_writes : i->scalar_writes).push_back(s);
    if (n >= results || op.accumulates) (vector ? i->vector_reads : i->scalar_reads).push_back(s);
  }
  if (op.shape == Shape::vcc_reader) i->scalar_reads.push_back({kVcc, 2});
  if (i->text.find("_load_lds_") != std::string::npos) i->scalar_reads.push_back({kM0, 1});
}

// All operands and what stands behind them; false where something is not known.
bool parse_operands(const Operation& op, std::string_view rest, Instruction* i) {
  std::vector<std::string_view> pieces = split(rest, ',');
  for (size_t p = 0; p < pieces.size(); ++p) {
    std::vector<std::string_view> words = split(pieces[p], ' ');
    if (words.empty()) return false;
    size_t first = 0;
    if (i->operands >= kMostOperands) return false;
    Operand& o = i->at[static_cast<size_t>(i->operands)];
    const size_t number = static_cast<size_t>(i->operands);
    const Type type = op.types.empty() ? Type::b32 : op.types[std::min(number, op.types.size() - 1)];
    if (words[0] == "off") {
      ++i->operands, first = 1;  // no register: the kind stays none
      i->off = true;
    } else if (words[0].starts_with("gpr_idx(")) {
      // Bits: the sources 0, 1, 2, the result.
      for (const std::string_view what : split(words[0].substr(8, words[0].size() - 9), ',')) {
        if (what != "SRC0" && what != "SRC1" && what != "SRC2" && what != "DST") return false;
        i->offset |= what == "DST" ? 8 : int64_t{1} << (what[3] - '0');
      }
      ++i->operands, first = 1;
    } else if (words[0].starts_with("hwreg(")) {
      if (!parse_mode(words[0], i)) return false;
      ++i->operands, first = 1;
    } else {
      o = parse_operand(words[0], type);
      if (o.kind != Operand::Kind::none) ++i->operands, first = 1;
    }
    for (size_t k = first; k < words.size(); ++k)
      if (!parse_modifier(words[k], i)) return false;
  }
  return true;
}

void set_name(std::string_view name, const Operation& op, Instruction* i) {
  i->run = op.run;
  i->number = op.number;
  i->zeroes_high = op.zeroes_high;
  if (name.find("fma_mix") != std::string_view::npos || name.find("mad_mix") != std::string_view::npos)
    i->op_sel_hi = 0;
  if (name.find("mfma_scale") != std::string_view::npos) i->op_sel_hi = 0;
}

// One of two that execute together, or a whole one.
bool parse_single(const Chip& chip, std::string_view text, bool dual, Instruction* i) {
  const size_t blank = text.find_first_of(" \t");
  std::string_view name = text.substr(0, blank);
  const std::string_view rest = blank == std::string_view::npos ? std::string_view() : trimmed(text.substr(blank));
  std::string whole(plain_name(name));
  if (dual && whole.starts_with("v_dual_")) whole = "v_" + whole.substr(7);
  const auto found = operations(chip).find(whole);
  if (found == operations(chip).end()) return false;
  const Operation& op = found->second;
  set_name(whole, op, i);
  i->loads = whole.find("load") != std::string::npos || whole.find("_read") != std::string::npos;
  i->counter = counter_of(chip, whole.starts_with("ds_") ? kLds : kLoads);
  if (name.ends_with("_sdwa")) i->sdwa.on = true;
  if (op.shape == Shape::ignored) return true;
  if (op.shape == Shape::wait) return parse_wait(chip, whole, rest, i);
  if (op.shape == Shape::branch) return parse_number(rest, &i->offset);
  if (!parse_operands(op, rest, i)) return false;
  if (i->clamp && !op.integer_clamp &&
      (op.types.empty() ||
       (op.types[0] != Type::f32 && op.types[0] != Type::f64 && op.types[0] != Type::f16 && op.types[0] != Type::pk32)))
    return false;
  if (chip.major > 9) i->zeroes_high = false;
  note_registers(op, i);
  const bool implicit_vcc = whole.starts_with("v_cndmask") && i->operands == 3;
  if (implicit_vcc) i->scalar_reads.push_back({kVcc, 2});
  return i->run != nullptr;
}

// Both read before either writes.
void run_pair(Wave& w, const Instruction& i) {
  const Instruction &x = i.pair[0], &y = i.pair[1];
  auto& to = (*w.vector)[x.at[0].first];
  const auto old = to;
  x.run(w, x);
  const auto now = to;
  to = old;
  y.run(w, y);
  to = now;
}

class Disassembler {
 public:
  explicit Disassembler(const Chip& chip) {
    static std::once_flag once;
    std::call_once(once, [] {
      LLVMInitializeAMDGPUTargetInfo();
      LLVMInitializeAMDGPUTargetMC();
      LLVMInitializeAMDGPUDisassembler();
    });
    const std::string features = chip.wave == 32 ? "+wavefrontsize32" : "+wavefrontsize64";
    context_ = LLVMCreateDisasmCPUFeatures("amdgcn-amd-amdhsa", chip.name.c_str(), features.c_str(), nullptr, 0,
                                           nullptr, nullptr);
    if (!context_) fault("LLVM has no disassembler for {}", chip.name);
  }
  ~Disassembler() { LLVMDisasmDispose(context_); }
  Disassembler(const Disassembler&) = delete;
  Disassembler& operator=(const Disassembler&) = delete;

  // 0: no instruction.
  size_t next(std::span<const uint8_t> code, uint64_t address, std::string* text) {
    char line[512] = {};
    const size_t n =
        LLVMDisasmInstruction(context_, const_cast<uint8_t*>(code.data()), code.size(), address, line, sizeof line);
    *text = trimmed(line);
    return n;
  }

 private:
  LLVMDisasmContextRef context_ = nullptr;
};

}  // namespace

Instruction parse_instruction(const Chip& chip, const std::string& line, uint64_t address, uint32_t bytes) {
  Instruction i;
  i.address = address, i.bytes = bytes, i.text = line;
  std::string_view text = line;
  text = trimmed(text.substr(0, text.find("//")));
  const size_t both = text.find(" :: ");
  bool known = false;
  try {
    if (both != std::string_view::npos) {
      i.pair.resize(2);
      known = parse_single(chip, trimmed(text.substr(0, both)), true, &i.pair[0]) &&
              parse_single(chip, trimmed(text.substr(both + 4)), true, &i.pair[1]);
      i.run = run_pair;
      for (Instruction& half : i.pair) {
        half.address = address;
        i.vector_reads.insert(i.vector_reads.end(), half.vector_reads.begin(), half.vector_reads.end());
        i.vector_writes.insert(i.vector_writes.end(), half.vector_writes.begin(), half.vector_writes.end());
        i.scalar_reads.insert(i.scalar_reads.end(), half.scalar_reads.begin(), half.scalar_reads.end());
      }
    } else {
      known = parse_single(chip, text, false, &i);
    }
  } catch (const Fault&) {
    known = false;
  }
  if (!known) i.run = unknown, i.pair.clear();
  return i;
}

std::vector<Instruction> decode(const Chip& chip, std::span<const uint8_t> code, uint64_t base) {
  Disassembler disassembler(chip);
  std::vector<Instruction> out;
  std::map<uint64_t, int> at;
  std::string text;
  for (uint64_t k = 0; k < code.size();) {
    const size_t n = disassembler.next(code.subspan(k), base + k, &text);
    const auto bytes = static_cast<uint32_t>(n == 0 ? 4 : n);
    at[base + k] = static_cast<int>(out.size());
    if (n == 0) {
      Instruction i;
      i.run = unknown, i.address = base + k, i.bytes = 4, i.text = "bytes that are no instruction";
      out.push_back(std::move(i));
    } else {
      out.push_back(parse_instruction(chip, text, base + k, bytes));
    }
    k += bytes;
  }
  for (Instruction& i : out) {
    if (!i.text.starts_with("s_branch") && !i.text.starts_with("s_cbranch")) continue;
    const auto target =
        at.find(i.address + 4 + static_cast<uint64_t>(static_cast<int64_t>(static_cast<int16_t>(i.offset)) * 4));
    if (target != at.end()) i.target = target->second;
  }
  return out;
}

}  // namespace lumen::amd
