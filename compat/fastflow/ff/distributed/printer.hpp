#pragma once

#include <ostream>

namespace ff {

/// std::cout with the group's name in front of each line. Lines of different threads do not mix:
/// each is written when it is complete, or flushed. Threads: any.
extern std::ostream& cout;

template <class Char, class Traits>
std::basic_ostream<Char, Traits>& endl(std::basic_ostream<Char, Traits>& stream) {
    stream.put(stream.widen('\n'));
    return stream.flush();
}

}  // namespace ff
