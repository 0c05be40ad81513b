#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>

#include <ff/distributed/printer.hpp>

#include "groups.hpp"

namespace ff {
namespace {

/// What one thread has printed of a line.
struct line {
    ~line() { write(); }
    void write() {
        if (text.empty()) return;
        static std::mutex one_at_a_time;
        const std::lock_guard guard(one_at_a_time);
        const std::string& group = detail::groups().mine;
        // `amalgam run` puts it there itself.
        static const bool launched = std::getenv("AMALGAM_GROUP") != nullptr;
        if (begins && !group.empty() && !launched) std::cout << '[' << group << "] ";
        begins = text.back() == '\n';
        std::cout << text << std::flush;
        text.clear();
    }
    std::string text;
    bool begins = true;
};

/// Has no areas of its own, so that threads may share it.
class line_buffer : public std::streambuf {
protected:
    int overflow(int c) override {
        if (c == traits_type::eof()) return traits_type::not_eof(c);
        mine().text.push_back(traits_type::to_char_type(c));
        if (c == '\n') mine().write();
        return c;
    }
    std::streamsize xsputn(const char* text, std::streamsize count) override {
        for (std::streamsize i = 0; i != count; ++i)
            overflow(traits_type::to_int_type(text[i]));
        return count;
    }
    int sync() override {
        mine().write();
        return 0;
    }

private:
    static line& mine() {
        static thread_local line one;
        return one;
    }
};

std::ostream& stream() {
    // Never destroyed: nodes may print as long as the process lives.
    static auto* const made = new std::ostream(new line_buffer);
    return *made;
}

}  // namespace

std::ostream& cout = stream();

}  // namespace ff
