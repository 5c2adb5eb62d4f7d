// Trees back to text. Brackets are written only where needed, so that parsing the text gives an equal tree. Proved by
// tests/lang/print_test.cpp (random trees and every embedded file).
#include <algorithm>

#include "lang/parse.h"
#include "lang/parser.h"

namespace lumen::lang {
namespace {

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string number(const Expr& e) {
  if (e.is_integer) return fmt::format("{}", e.integer);
  std::string s = fmt::format("{}", e.number);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

class Printer {
 public:
  std::string out;

  // Prints `e`, in brackets if it binds looser than `least`.
  void expr(const Expr& e, int least = kChoose) {
    const bool brackets = power(e) < least;
    if (brackets) out += '(';
    bare(e);
    if (brackets) out += ')';
  }

  void file(const File& f) {
    for (const Table& t : f.tables) table(t);
    for (const Function& g : f.functions) {
      out += "fn ";
      function(g, "");
    }
    for (const FormatDecl& d : f.formats) format(d);
    for (const FormatAlias& a : f.aliases) {
      out += fmt::format("format {}", a.name);
      attributes(a.attributes, " : ");
      out += " = ";
      expr(*a.value);
      out += '\n';
    }
    for (const ModelDecl& m : f.models) model(m);
  }

 private:
  static int power(const Expr& e) {
    switch (e.kind) {
      case ExprKind::choose:
        return kChoose;
      case ExprKind::range:
        return kChoose;
      case ExprKind::reduce:
        return kMultiply - 1;  // its body extends over following operators of product level
      case ExprKind::unary:
        return kUnary;
      case ExprKind::binary:
        return binary_power(e.text);
      default:
        return kPower + 1;
    }
  }

  void list(const std::vector<ExprPtr>& args, size_t from = 0) {
    for (size_t i = from; i < args.size(); ++i) {
      if (i > from) out += ", ";
      expr(*args[i]);
    }
  }

  void bare(const Expr& e) {
    switch (e.kind) {
      case ExprKind::number:
        out += number(e);
        break;
      case ExprKind::string:
        out += quoted(e.text);
        break;
      case ExprKind::name:
        out += e.text;
        break;
      case ExprKind::unary:
        out += e.text == "not" ? "not " : e.text;
        expr(*e.args[0], kUnary);
        break;
      case ExprKind::binary: {
        const int p = binary_power(e.text);
        // Powers associate to the right, comparisons not at all, the others to the left.
        expr(*e.args[0], p == kPower || p == kCompare ? p + 1 : p);
        out += ' ' + e.text + ' ';
        expr(*e.args[1], p == kPower ? p : p + 1);
        break;
      }
      case ExprKind::call:
        out += e.text + '(';
        for (size_t i = 0; i < e.args.size(); ++i) {
          if (i > 0) out += ", ";
          if (!e.names[i].empty()) out += e.names[i] + " = ";
          expr(*e.args[i]);
        }
        out += ')';
        break;
      case ExprKind::index:
        expr(*e.args[0], kPower + 1);
        out += '[';
        list(e.args, 1);
        if (e.outside) {
          out += "; ";
          expr(*e.outside);
        }
        out += ']';
        break;
      case ExprKind::member:
        expr(*e.args[0], kPower + 1);
        out += '.' + e.text;
        break;
      case ExprKind::list:
        out += '[';
        list(e.args);
        out += ']';
        break;
      case ExprKind::slice:
        if (e.args[0]) expr(*e.args[0]);
        out += ':';
        if (e.args[1]) expr(*e.args[1]);
        break;
      case ExprKind::reduce:
        out += e.text + '(';
        for (size_t i = 0; i < e.vars.size(); ++i) {
          if (i > 0) out += ", ";
          out += e.vars[i];
          if (!e.ranges[i].first) continue;
          out += " in ";
          range(e.ranges[i].first, e.ranges[i].second, kChoose);
        }
        out += ") ";
        reduce_body(*e.args[0]);
        break;
      case ExprKind::choose:
        out += "if ";
        expr(*e.args[0], kChoose + 1);
        out += " then ";
        expr(*e.args[1], kChoose + 1);
        out += " else ";
        expr(*e.args[2]);
        break;
      case ExprKind::range:
        range(e.args[0], e.args[1], kAdd);
        break;
    }
  }

  // After 'sum(k)' only some tokens start an expression: a minus or a list would be parsed differently.
  void reduce_body(const Expr& body) {
    const Expr* first = &body;
    while (first->kind == ExprKind::binary || first->kind == ExprKind::index || first->kind == ExprKind::member)
      first = first->args[0].get();
    const bool plain = first->kind == ExprKind::name || first->kind == ExprKind::number ||
                       first->kind == ExprKind::string || first->kind == ExprKind::call ||
                       first->kind == ExprKind::reduce;
    const bool nested = body.kind == ExprKind::reduce;
    const bool named = first->kind == ExprKind::name || first->kind == ExprKind::call;
    const bool contextual =
        named && (first->text == "step" || first->text == "byte" || first->text == "bit" || first->text == "bits");
    if (nested || (plain && !contextual && power(body) >= kMultiply)) {
      bare(body);
    } else {
      out += '(';
      bare(body);
      out += ')';
    }
  }

  void range(const ExprPtr& from, const ExprPtr& to, int least) {
    expr(*from, least);
    out += "..";
    expr(*to, least);
  }

  void type(const TypeExpr& t) {
    if (t.is_state) out += "state ";
    out += t.name;
    if (!t.params.empty()) {
      out += '<';
      for (size_t i = 0; i < t.params.size(); ++i) {
        if (i > 0) out += ", ";
        expr(*t.params[i], kAdd);
      }
      out += '>';
    }
    if (!t.has_dims) return;
    out += '[';
    if (t.leading_any) out += "..." + t.leading_name + (t.dims.empty() ? "" : ", ");
    list(t.dims);
    out += ']';
  }

  void attribute(const Attribute& a) {
    out += a.name;
    for (const ExprPtr& v : a.values) {
      out += ' ';
      const bool atom = v->kind == ExprKind::number || v->kind == ExprKind::string || v->kind == ExprKind::name;
      expr(*v, atom ? kChoose : kPower + 2);
    }
  }

  void attributes(const std::vector<Attribute>& list_of, const char* before) {
    for (size_t i = 0; i < list_of.size(); ++i) {
      out += i == 0 ? before : ", ";
      attribute(list_of[i]);
    }
  }

  void params(const std::vector<Param>& ps) {
    out += '(';
    for (size_t i = 0; i < ps.size(); ++i) {
      if (i > 0) out += ", ";
      out += ps[i].name;
      if (ps[i].type) {
        out += ": ";
        type(*ps[i].type);
      }
      if (ps[i].default_value) {
        out += " = ";
        expr(*ps[i].default_value);
      }
    }
    out += ')';
  }

  void function(const Function& f, const std::string& indent) {
    out += f.name;
    params(f.params);
    for (size_t i = 0; i < f.results.size(); ++i) {
      out += i == 0 ? " -> " : ", ";
      type(f.results[i]);
    }
    if (f.body.size() == 1 && f.body[0].kind == StmtKind::result && f.body[0].values.size() == 1) {
      out += " = ";
      expr(*f.body[0].values[0]);
    } else {
      out += ' ';
      block(f.body, indent);
    }
    out += '\n';
  }

  void block(const std::vector<Stmt>& body, const std::string& indent) {
    out += "{\n";
    for (const Stmt& s : body) {
      out += indent + "  ";
      stmt(s, indent + "  ");
      out += '\n';
    }
    out += indent + "}";
  }

  void stmt(const Stmt& s, const std::string& indent) {
    switch (s.kind) {
      case StmtKind::let:
        out += "let ";
        if (s.names.size() > 1) out += '(';
        for (size_t i = 0; i < s.names.size(); ++i) out += (i > 0 ? ", " : "") + s.names[i];
        if (s.names.size() > 1) out += ')';
        out += " = ";
        expr(*s.value);
        break;
      case StmtKind::var:
        out += "var " + s.names[0];
        if (s.extent) {
          out += '[';
          expr(*s.extent);
          out += ']';
        }
        if (s.value) {
          out += " = ";
          expr(*s.value);
        }
        break;
      case StmtKind::assign:
      case StmtKind::define:
        list(s.targets);
        out += " = ";
        expr(*s.value);
        break;
      case StmtKind::loop:
        out += "for " + s.names[0] + " in ";
        expr(*s.from);
        if (s.to) {
          out += "..";
          expr(*s.to);
        }
        if (s.step) {
          out += " step ";
          expr(*s.step);
        }
        out += ' ';
        block(s.body, indent);
        break;
      case StmtKind::branch:
        out += "if ";
        expr(*s.value);
        out += ' ';
        block(s.body, indent);
        if (!s.otherwise.empty()) {
          out += " else ";
          block(s.otherwise, indent);
        }
        break;
      case StmtKind::result:
        out += "return ";
        list(s.values);
        break;
    }
  }

  void table(const Table& t) {
    out += fmt::format("table {} : ", t.name);
    type(t.type);
    out += " = [";
    list(t.values);
    out += "]\n";
  }

  void piece(const LayoutPiece& p) {
    const size_t begin = out.size();
    const auto space = [&] {
      if (out.size() > begin) out += ' ';
    };
    out += p.shorthand;
    if (p.index_from) {
      space();
      out += '[';
      range(p.index_from, p.index_to, kAdd);
      out += ']';
    }
    if (p.bits_from) {
      space();
      out += "bits ";
      range(p.bits_from, p.bits_to, kAdd);
    }
    if (p.byte) {
      space();
      out += "byte ";
      expr(*p.byte, kAdd);
    }
    if (p.bit) {
      space();
      out += "bit ";
      expr(*p.bit, kAdd);
    }
    if (p.modes.empty()) return;
    space();
    out += '(';
    for (size_t i = 0; i < p.modes.size(); ++i) {
      if (i > 0) out += ", ";
      expr(*p.modes[i].first, kAdd);
      out += " : ";
      expr(*p.modes[i].second, kAdd);
    }
    out += ')';
  }

  void format(const FormatDecl& f) {
    out += fmt::format("format {}", f.name);
    if (!f.params.empty()) params(f.params);
    attributes(f.attributes, " : ");
    out += " {\n";
    for (const FieldDecl& d : f.fields) {
      out += "  " + (d.level.empty() ? "" : d.level + " ") + d.name + " : ";
      type(d.type);
      for (size_t i = 0; i < d.layout.size(); ++i) {
        out += i == 0 ? " at " : ", ";
        piece(d.layout[i]);
      }
      out += '\n';
    }
    for (const Function& r : f.routines) {
      out += "  ";
      function(r, "  ");
    }
    out += "}\n";
  }

  void model_param(const ModelParam& p, const std::string& indent) {
    out += indent + "param " + p.name + " : ";
    type(p.type);
    attributes(p.attributes, ", ");
    out += '\n';
  }

  void model(const ModelDecl& m) {
    const bool is_optimizer = !m.attributes.empty() && m.attributes[0].name == "optimizer";
    out += fmt::format("{} {}(cfg)", is_optimizer ? "optimizer" : "model", m.name);
    attributes({m.attributes.begin() + (is_optimizer ? 1 : 0), m.attributes.end()}, " : ");
    out += " {\n";
    if (!m.config.empty()) {
      out += "  config {\n";
      for (const ConfigKey& k : m.config) {
        out += "    " + k.name + " : ";
        type(k.type);
        if (k.default_value) {
          out += " = ";
          expr(*k.default_value);
        }
        attributes(k.attributes, ", ");
        out += '\n';
      }
      out += "  }\n";
    }
    for (const SizeDecl& s : m.sizes) {
      out += "  size " + quoted(s.name) + " {\n";
      for (const auto& [key, value] : s.values) {
        out += "    " + key + " = ";
        expr(*value);
        out += '\n';
      }
      out += "  }\n";
    }
    for (const ModelParam& p : m.params) model_param(p, "  ");
    if (m.layer_count) {
      out += "  layers ";
      expr(*m.layer_count);
      out += " {\n";
      for (const ModelParam& p : m.layer_params) model_param(p, "    ");
      out += "  }\n";
    }
    for (const Function& f : m.functions) {
      out += "  fn ";
      function(f, "  ");
    }
    out += "}\n";
  }
};

}  // namespace

std::string print_file(const File& file) {
  Printer p;
  p.file(file);
  return std::move(p.out);
}

std::string print_expression(const Expr& expr) {
  Printer p;
  p.expr(expr);
  return std::move(p.out);
}

}  // namespace lumen::lang
