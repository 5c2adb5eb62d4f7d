// The start of a program that is linked with the libraries of old_glibc.py. Since glibc 2.34 the compiler's start code
// leaves a program's constructors to the C library. Older ones call what they are given here; newer ones do that too.
// Linked with --wrap=__libc_start_main.
typedef void (*Constructor)(int, char**, char**);

int __real___libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, Constructor init,
                             void (*fini)(void), void (*linker_fini)(void), void* stack_end);

#pragma GCC visibility push(hidden)

extern void _init(void);
extern Constructor __init_array_start[], __init_array_end[];

static void construct(int argc, char** argv, char** environment) {
  _init();
  for (Constructor* f = __init_array_start; f != __init_array_end; ++f) (*f)(argc, argv, environment);
}

int __wrap___libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, Constructor init,
                             void (*fini)(void), void (*linker_fini)(void), void* stack_end) {
  return __real___libc_start_main(main, argc, argv, init ? init : construct, fini, linker_fini, stack_end);
}

#pragma GCC visibility pop
