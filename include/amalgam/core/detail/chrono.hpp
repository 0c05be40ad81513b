#pragma once

// The clocks and durations of <chrono>. libstdc++ has them in a header of their own, a fifth of the
// size of <chrono>, which brings <sstream> for the formatting of dates. A program that formats or
// parses times includes <chrono> itself.
#if __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#else
#include <chrono>
#endif
