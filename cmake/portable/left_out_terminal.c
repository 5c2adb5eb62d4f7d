// What libedit would take of libraries that cannot be inside: libtinfo is no position-independent code, and libbsd's
// functions have versions that a static library cannot define. The linker takes the first definition, which is this
// file's.
#include <stdio.h>
#include <string.h>

// The capabilities of terminals, as those of xterm, which the terminals of today understand. A database of terminals
// need not be on the machine then. "%i" counts from one.
static const char* const kStrings[][2] = {
    {"al", "\033[L"},        {"bl", "\007"},     {"cd", "\033[J"},   {"ce", "\033[K"},   {"ch", "\033[%i%dG"},
    {"cl", "\033[H\033[2J"}, {"dc", "\033[P"},   {"dl", "\033[M"},   {"ei", "\033[4l"},  {"im", "\033[4h"},
    {"ho", "\033[H"},        {"kd", "\033OB"},   {"kl", "\033OD"},   {"kr", "\033OC"},   {"ku", "\033OA"},
    {"md", "\033[1m"},       {"me", "\033[m"},   {"nd", "\033[C"},   {"se", "\033[27m"}, {"so", "\033[7m"},
    {"up", "\033[A"},        {"us", "\033[4m"},  {"ue", "\033[24m"}, {"DC", "\033[%dP"}, {"DO", "\033[%dB"},
    {"IC", "\033[%d@"},      {"LE", "\033[%dD"}, {"RI", "\033[%dC"}, {"UP", "\033[%dA"}, {"kh", "\033OH"},
    {"@7", "\033OF"},        {"kD", "\033[3~"},
};

int tgetent(char* entry, const char* name) {
  (void)entry, (void)name;
  return 1;
}
int tgetflag(const char* id) {
  return strcmp(id, "am") == 0 || strcmp(id, "xn") == 0;  // lines wrap, after the next character
}
int tgetnum(const char* id) {
  return strcmp(id, "co") == 0 ? 80 : strcmp(id, "li") == 0 ? 24 : -1;  // libedit asks the terminal itself, too
}
char* tgetstr(const char* id, char** area) {
  for (size_t i = 0; i < sizeof kStrings / sizeof *kStrings; ++i) {
    if (strcmp(kStrings[i][0], id) != 0) continue;
    const size_t size = strlen(kStrings[i][1]) + 1;
    char* const out = memcpy(*area, kStrings[i][1], size);
    *area += size;
    return out;
  }
  return 0;
}
// libedit gives the same number twice.
char* tgoto(const char* text, int column, int row) {
  static char out[32];
  (void)column;
  const char* const one = strstr(text, "%i");
  const char* const number = strstr(text, "%d");
  if (!number) return strncpy(out, text, sizeof out - 1);
  snprintf(out, sizeof out, "%.*s%d%s", (int)((one ? one : number) - text), text, row + (one ? 1 : 0), number + 2);
  return out;
}
int tputs(const char* text, int lines, int (*put)(int)) {
  (void)lines;
  for (; *text; ++text) put((unsigned char)*text);
  return 0;
}

// Escapes of texts in libedit's own files of a history; Lumen writes and reads its history itself.
char* vis(char* to, int c, int flags, int next) {
  (void)flags, (void)next;
  *to++ = (char)c;
  *to = 0;
  return to;
}
int strvis(char* to, const char* from, int flags) {
  (void)flags;
  strcpy(to, from);
  return (int)strlen(from);
}
int strunvis(char* to, const char* from) {
  strcpy(to, from);
  return (int)strlen(from);
}
