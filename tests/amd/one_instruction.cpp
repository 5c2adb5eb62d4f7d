// Executes single instructions: a door to the interpreter for tests in other languages (pcode_reference.py).
//
//   amd_instruction CHIP names    the operations that are known, one a line
//   amd_instruction CHIP          cases from standard input, one after the other, all numbers hexadecimal:
//     v NUMBER WORD..    a vector register's lanes       s NUMBER WORD..  scalar registers from a number on
//     (instruction.h) c BIT              SCC                             m BYTES, l BYTES what memory (at kMemory), LDS
//     hold x BYTES            the instruction; executed with what was set. Answered by its text, then what became of
//     the state,
//                        or the fault, then a dot. What was set is forgotten.
#include <iostream>
#include <sstream>

#include "tests/amd/decode/decoder.h"
#include "tests/amd/decode/operation.h"
#include "tests/amd/fault.h"
#include "tests/amd/wave/wave.h"

namespace lumen::amd {
namespace {

constexpr uint64_t kMemory = uint64_t{1} << 40;  // where the memory of a case lies
constexpr int kLdsBytes = 4096;

std::vector<uint8_t> bytes_of(const std::string& text) {
  if (text.size() % 2 != 0) fault("half a byte");
  std::vector<uint8_t> out(text.size() / 2);
  for (size_t n = 0; n < out.size(); ++n) out[n] = static_cast<uint8_t>(std::stoul(text.substr(2 * n, 2), nullptr, 16));
  return out;
}
void print_bytes(char what, const uint8_t* bytes, size_t count) {
  std::string line(1, what);
  line += ' ';
  for (size_t n = 0; n < count; ++n) line += fmt::format("{:02x}", bytes[n]);
  std::cout << line << '\n';
}

class Case {
 public:
  explicit Case(const Chip& chip) : group_{Lds(kLdsBytes), {}} {
    group_.waves.emplace_back(chip, chip.wave, 0);
    Wave& w = wave();
    w.scalar.fill(0);
    for (auto& r : *w.vector) r.fill(0);
    w.set_exec(w.all());
    w.lds = &group_.lds;
    w.memory = &memory_;
  }
  // One line of what is set.
  void set(char what, std::istream& line) {
    Wave& w = wave();
    size_t n = 0;
    std::string word;
    line >> std::hex;
    if (what == 'm' || what == 'l') {
      line >> word;
      (what == 'm' ? bytes_ : lds_bytes_) = bytes_of(word);
      return;
    }
    if (!(line >> n)) fault("a number is missing");
    if (what == 'c') w.scc = n != 0;
    if (what != 'v' && what != 's') return;
    if (what == 'v' && n >= kVectors) fault("no vector register {}", n);
    for (size_t k = 0; line >> word; ++k) {
      if (what == 'v' ? k >= kMostLanes : n + k >= kScalars) fault("too many words");
      (what == 'v' ? (*w.vector)[n][k] : w.scalar[n + k]) = static_cast<uint32_t>(std::stoul(word, nullptr, 16));
    }
  }
  void execute(const Chip& chip, const std::vector<uint8_t>& code) {
    Wave& w = wave();
    const std::vector<Instruction> all = decode(chip, code, 0);
    if (all.size() != 1) fault("{} instructions", all.size());
    std::cout << "text " << all[0].text << '\n';
    if (!bytes_.empty()) memory_.add(kMemory, bytes_.size(), bytes_.data(), true);
    if (!lds_bytes_.empty()) {
      std::memcpy(group_.lds.write(0, static_cast<int>(lds_bytes_.size()), 0, 0, 0), lds_bytes_.data(),
                  lds_bytes_.size());
    }
    const auto vector = *w.vector;
    const auto scalar = w.scalar;
    all[0].run(w, all[0]);
    for (size_t n = 0; n < kVectors; ++n) {
      if ((*w.vector)[n] == vector[n]) continue;
      std::cout << fmt::format("v {:x}", n);
      for (int l = 0; l < w.lanes; ++l) std::cout << fmt::format(" {:x}", (*w.vector)[n][static_cast<size_t>(l)]);
      std::cout << '\n';
    }
    for (size_t n = 0; n < kScalars; ++n)
      if (w.scalar[n] != scalar[n]) std::cout << fmt::format("s {:x} {:x}\n", n, w.scalar[n]);
    std::cout << "c " << w.scc << '\n';
    if (w.jump != ~uint64_t{0}) std::cout << fmt::format("j {:x}\n", w.jump);
    if (!bytes_.empty()) print_bytes('m', bytes_.data(), bytes_.size());
    if (!lds_bytes_.empty())
      print_bytes('l', group_.lds.read(0, static_cast<int>(lds_bytes_.size()), 0, 0, 0), lds_bytes_.size());
  }

 private:
  Wave& wave() { return group_.waves[0]; }
  Group group_;
  Memory memory_;
  std::vector<uint8_t> bytes_, lds_bytes_;
};

int answer(const Chip& chip) {
  auto now = std::make_unique<Case>(chip);
  std::string text;
  while (std::getline(std::cin, text)) {
    if (text.size() < 3) continue;
    std::istringstream line(text.substr(2));
    try {
      if (text[0] != 'x') {
        now->set(text[0], line);
        continue;
      }
      std::string word;
      line >> word;
      now->execute(chip, bytes_of(word));
    } catch (const std::exception& f) {
      std::cout << "fault " << f.what() << '\n';
    }
    std::cout << "." << std::endl;
    now = std::make_unique<Case>(chip);
  }
  return 0;
}

}  // namespace
}  // namespace lumen::amd

int main(int count, char** words) {
  const lumen::amd::Chip* chip = lumen::amd::find_chip(count > 1 ? words[1] : "");
  if (!chip) {
    std::cerr << "amd_instruction CHIP [names]\n";
    return 2;
  }
  if (count == 2) return lumen::amd::answer(*chip);
  for (const auto& [name, operation] : lumen::amd::operations(*chip)) std::cout << name << '\n';
  return 0;
}
