#pragma once

// Before a function that traces are to name. It must not be in an unnamed namespace, as only
// exported names are known; optimizers would make unexported copies of it, or call it in line.
#if defined(__clang__)
#define AMALGAM_IN_TRACES [[clang::optnone]] [[gnu::noinline]]
#else
#define AMALGAM_IN_TRACES [[gnu::noipa]] [[gnu::noinline]]
#endif
