#pragma once
// What the sources of fastflow_groups_program have in common.

#include <functional>
#include <map>
#include <string>

#include <ff/dff.hpp>

namespace ff::testing_groups {

using cases = std::map<std::string, std::function<int()>>;
/// How items become bytes.
cases cases_of_bytes();
/// The same by cereal; none where it is not installed.
cases cases_of_cereal();

constexpr long items = 2000;

struct item {
    long number = 0;
    long from = -1;
    std::string text;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(number, from, text);
    }
};

inline long sum_to(long n) {
    return n * (n - 1) / 2;
}
inline int check(const char* what, long got, long expected) {
    if (got == expected)
        ff::cout << "right\n";
    else
        ff::cout << "wrong: " << what << " is " << got << ", expected " << expected << "\n";
    return 0;
}

}  // namespace ff::testing_groups
