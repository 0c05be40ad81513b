// C++ features that need support from a linker: virtual functions, static objects, thread-local
// data, exceptions, the standard library.
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <amalgam/inject/image.h>

AMALGAM_INJECTED(rich)

namespace {

struct shape {
    virtual ~shape() = default;
    virtual long area() const = 0;
};
struct square : shape {
    explicit square(long s) : side(s) {}
    long area() const override { return side * side; }
    long side;
};

std::map<std::string, int>* table;
struct begins {
    begins() { table = new std::map<std::string, int>{{"six", 6}}; }
    ~begins() { delete table; }
} whole;
thread_local long calls = 3;

long fails(long n) {
    if (n > 1) throw std::runtime_error("too much");
    return n;
}

}  // namespace

void rich_main(void*, std::size_t, void* target) {
    long& result = *static_cast<long*>(target);
    const shape& one = square(table->at("six"));
    result += one.area();
    try {
        result += fails(result);
    } catch (const std::exception& why) {
        result += static_cast<long>(std::strlen(why.what()));
    }
    std::vector<long> many(1000, 1);
    for (long each : many)
        result += each;
    static const std::string once = "once";
    result += static_cast<long>(once.size()) + ++calls;
}
