// Prints loop IR in the form text.h describes; parse.cpp is the inverse. Proved by
// tests/kernel/loop/loop_text_test.cpp.
#include "kernel/loop/text.h"

#include <cmath>

#include "base/check.h"
#include "kernel/loop/rules.h"

namespace lumen::loop {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

std::string quote(std::string_view name) {
  if (!name.empty() && std::ranges::all_of(name, is_plain)) return std::string(name);
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + '"';
}

std::string number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return fmt::format("{}", x);  // shortest text that reads back as x
}

class Printer {
 public:
  void region(const Region& r, int indent) {
    for (const Instr& instr : r.code) {
      line(instr, indent);
      out += '\n';
    }
  }

  void line(const Instr& instr, int indent) {
    indented(indent);
    if (instr.result >= 0) put("%{} = ", instr.result);
    if (instr.op == Op::alloc_) put("@{} = ", instr.buffer);
    out += instr.op == Op::op_ ? scalar_op_info(instr.scalar_op).name : name_of(instr.op);
    if (instr.result >= 0) put(" {}", print(instr.type));
    for (const Piece& p : syntax_of(instr.op)) piece(instr, p, indent);
  }

  std::string out;

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(out), text, std::forward<Args>(args)...);
  }
  void indented(int indent) { out.append(static_cast<size_t>(indent) * 2, ' '); }

  void piece(const Instr& instr, const Piece& p, int indent) {
    using Kind = Piece::Kind;
    const auto operand = [&] { return instr.operands[p.index]; };
    switch (p.kind) {
      case Kind::word:
        return put("{}{}", p.word == "," ? "" : " ", p.word);
      case Kind::operand:
        return put(" %{}", operand());
      case Kind::held:
        if (instr.buffer < 0) return put(" %{}", operand());
        [[fallthrough]];
      case Kind::place:
        return put(" @{}[%{}]", instr.buffer, operand());
      case Kind::from:
        return put(" @{}[%{}]", instr.from, operand());
      case Kind::count:
        if (p.index < std::ssize(instr.operands)) put(" count %{}", operand());
        return;
      case Kind::region:
        if (p.index > 0 && instr.regions[p.index].code.empty()) return;
        out += p.index > 0 ? " else {\n" : " {\n";
        region(instr.regions[p.index], indent + 1);
        indented(indent);
        out += '}';
        return;
      case Kind::operands:
        for (size_t i = 0; i < instr.operands.size(); ++i) put("{} %{}", i == 0 ? "" : ",", instr.operands[i]);
        return;
      case Kind::numbers:
        return numbers(instr);
      case Kind::mask:
        return put(" [{}]", fmt::join(instr.mask, ", "));
      case Kind::counter:
        return put(" %{}", instr.regions[0].counter);
      default:
        visit_field(instr, p.kind, [&](const auto& x) { put(" {}", shown(x)); });
    }
  }

  static std::string shown(const std::string& row) { return quote(row); }
  static std::string_view shown(ScalarOp op) { return scalar_op_info(op).name; }
  template <typename T>
  static auto shown(T x) {
    if constexpr (std::is_enum_v<T>)
      return name_of(x);
    else
      return x;
  }

  void numbers(const Instr& instr) {
    std::vector<std::string> all;
    for (const double x : instr.data) all.push_back(number(x));
    for (const int64_t x : instr.integers) all.push_back(fmt::format("{}", x));
    all.size() == 1 ? put(" {}", all[0]) : put(" [{}]", fmt::join(all, ", "));
  }
};

}  // namespace

std::string print(const Instr& instr) {
  Printer p;
  p.line(instr, 0);
  return p.out;
}

std::string print(const Kernel& k) {
  Printer p;
  p.out = "kernel " + quote(k.name) + "(";
  for (size_t i = 0; i < k.params.size(); ++i) {
    const BufferParam& param = k.params[i];
    p.out += fmt::format("{}@{} {}: {} bytes align {}{}{}", i == 0 ? "" : ", ", i, quote(param.name), param.bytes,
                         param.align, param.written ? " written" : "", param.constant ? " constant" : "");
  }
  p.out += k.aliased ? ") aliased" : ")";
  if (k.instances > 1) p.out += fmt::format(" instances {}", k.instances);
  p.out += " {\n";
  p.region(k.body, 1);
  p.out += "}\n";
  return p.out;
}

std::string without_name(const Kernel& k, const std::string& printed) {
  return printed.substr(std::string_view("kernel ").size() + quote(k.name).size());
}

std::string print(const Function& f) {
  Printer p;
  p.out = "func " + quote(f.name) + "(";
  for (size_t i = 0; i < f.params.size(); ++i)
    p.out += fmt::format("{}%{}: {}", i == 0 ? "" : ", ", f.params[i], print(f.body.value_types[f.params[i]]));
  p.out += fmt::format(") -> {} {{\n", print(f.body.value_types[f.result]));
  p.region(f.body.body, 1);
  p.out += fmt::format("  return %{}\n}}\n", f.result);
  return p.out;
}

}  // namespace lumen::loop
