#pragma once

// Marks a function whose name must appear in traces. It must not be in an unnamed namespace, as
// only exported names are known, and optimizers would clone or inline unexported functions.
#if defined(__clang__)
#define AMALGAM_IN_TRACES [[clang::optnone]] [[gnu::noinline]]
#else
#define AMALGAM_IN_TRACES [[gnu::noipa]] [[gnu::noinline]]
#endif
