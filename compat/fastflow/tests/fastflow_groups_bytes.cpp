// Cases of fastflow_groups_program: how items become bytes, and items again.
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ff/dff.hpp>

#include "fastflow_groups_testing.hpp"

using namespace ff;
using namespace ff::testing_groups;

namespace {

/// Members that turn an item into bytes and back: nothing is copied at either end.
struct by_hand {
    char* bytes = nullptr;
    std::size_t count = 0;
    char* whole = nullptr;  // that `bytes` is in, to be freed with it
    static inline long released = 0, freed = 0;

    ~by_hand() { std::free(whole != nullptr ? whole : bytes); }
    serializedBuffer_t serialize() {
        return {bytes, count, false, this, [](void* owner, char*, std::size_t) {
                    ++released;
                    delete static_cast<by_hand*>(owner);
                }};
    }
    bool deserialize(char* from, std::size_t size) {
        bytes = whole = from;
        count = size;
        return false;
    }
    static by_hand* alloc(char*, std::size_t) { return new by_hand; }
    static void freeTask(by_hand* what) {
        ++freed;
        delete what;
    }
};
/// The same with bytes of the runtime.
struct copied : by_hand {
    serializedBuffer_t serialize() {
        char* const to = static_cast<char*>(std::malloc(count));
        std::memcpy(to, bytes, count);
        return {to, count};
    }
    bool deserialize(char* from, std::size_t size) {
        bytes = static_cast<char*>(std::malloc(size));
        std::memcpy(bytes, from, size);
        count = size;
        return true;
    }
    static copied* alloc(char*, std::size_t) { return new copied; }
    static void freeTask(copied* what) {
        ++freed;
        delete what;
    }
};
template <typename T>
int manual() {
    struct source : ff_node_t<T> {
        T* svc(T*) override {
            for (std::size_t i = 1; i <= 200; ++i) {
                auto* const made = new T;
                made->count = i * 1000;
                made->bytes = static_cast<char*>(std::malloc(made->count));
                std::memset(made->bytes, static_cast<int>(i), made->count);
                this->ff_send_out(made);
            }
            return this->EOS;
        }
    } first;
    struct sink : ff_node_t<T> {
        T* svc(T* what) override {
            ++count;
            for (std::size_t i = 0; i != what->count; ++i)
                if (what->bytes[i] != static_cast<char>(count) ||
                    what->count != static_cast<std::size_t>(count) * 1000) {
                    ff::cout << "wrong: item " << count << " has other bytes\n";
                    break;
                }
            delete what;
            return this->GO_ON;
        }
        void svc_end() override { check("items", count, 200); }
        long count = 0;
    } last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    const int result = whole.run_and_wait_end();
    if (DFF_getMyGroup() == "G1")
        check("items given back", by_hand::released + by_hand::freed, 200);
    return result;
}

/// Functions that nodes set, in both of FastFlow's forms, for a type that knows nothing of it.
struct opaque {
    explicit opaque(long n) : number(n) {}
    long number;
};
int functions(bool older) {
    struct source : ff_node {
        explicit source(bool with_buffer) {
            if (with_buffer) {
                serializeF = [](void* what, dataBuffer& to) {
                    std::ostream stream(&to);
                    stream << static_cast<opaque*>(what)->number;
                    return true;
                };
            } else {
                serializeF = [](void* what, message2_t* to) {
                    char* const bytes = static_cast<char*>(std::malloc(sizeof(long)));
                    std::memcpy(bytes, &static_cast<opaque*>(what)->number, sizeof(long));
                    to->setBuff({bytes, sizeof(long)});
                    to->cleanup = true;
                    return true;
                };
            }
            freetaskF = [](void* what) { delete static_cast<opaque*>(what); };
        }
        void* svc(void*) override {
            for (long i = 0; i != items; ++i)
                ff_send_out(new opaque(i));
            return EOS;
        }
    } first(older);
    struct sink : ff_node {
        explicit sink(bool with_buffer) {
            alloctaskF = [](char*, std::size_t) -> void* { return new opaque(0); };
            if (with_buffer) {
                deserializeF = [](dataBuffer& from, bool& is_copied) -> void* {
                    is_copied = true;
                    return new opaque(std::stol(std::string(from.getPtr(), from.getLen())));
                };
            } else {
                deserializeF = [](message2_t* from, bool&, ff_node* self) -> void* {
                    auto* const made = static_cast<opaque*>(self->alloctaskF(nullptr, 0));
                    std::memcpy(&made->number, from->data, sizeof(long));
                    return made;
                };
            }
        }
        void* svc(void* what) override {
            sum += static_cast<opaque*>(what)->number;
            delete static_cast<opaque*>(what);
            return GO_ON;
        }
        void svc_end() override { check("the sum", sum, sum_to(items)); }
        long sum = 0;
    } last(older);
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    return whole.run_and_wait_end();
}

/// What serialize(Archive&) may hold.
struct everything {
    std::vector<std::string> words;
    std::map<std::string, std::vector<double>> table;
    std::optional<int> maybe, never;
    std::unique_ptr<item> inner;
    std::pair<int, std::array<short, 3>> both;
    std::set<char> letters;
    std::vector<bool> bits;
    std::tuple<bool, std::string, float> three;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(words, table, maybe, never);
        archive(inner, both);
        archive& letters;
        archive(bits, three);
    }
};
int containers() {
    struct source : ff_node_t<everything> {
        everything* svc(everything*) override {
            for (int i = 0; i != 50; ++i) {
                auto* const made = new everything;
                made->words.assign(static_cast<std::size_t>(i), "word");
                made->table["a"] = {1.5, i + 0.5};
                made->maybe = i;
                made->inner = std::make_unique<item>(item{i, 1, "inner"});
                made->both = {i, {1, 2, 3}};
                made->letters = {'a', 'b'};
                made->bits = {true, false, true};
                made->three = {true, "three", 3.F};
                ff_send_out(made);
            }
            return EOS;
        }
    } first;
    struct sink : ff_node_t<everything> {
        everything* svc(everything* what) override {
            const std::unique_ptr<everything> owned(what);
            const int i = static_cast<int>(count);
            const bool good = what->words.size() == static_cast<std::size_t>(i) &&
                              what->table["a"] == std::vector<double>{1.5, i + 0.5} &&
                              what->maybe == i && !what->never && what->inner->text == "inner" &&
                              what->inner->number == i && what->both.second[2] == 3 &&
                              what->letters == std::set<char>{'a', 'b'} &&
                              what->bits == std::vector<bool>{true, false, true} &&
                              std::get<1>(what->three) == "three";
            if (good) ++count;
            return GO_ON;
        }
        void svc_end() override { check("good items", count, 50); }
        long count = 0;
    } last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    return whole.run_and_wait_end();
}

/// Functions beside an item. Its text stands behind it in one piece of malloc().
template <int Version>
struct piece {
    explicit piece(std::size_t size) : count(size) {}
    char* text() { return reinterpret_cast<char*>(this + 1); }
    static piece* make(std::size_t size, char letter) {
        auto* const made = new (std::malloc(sizeof(piece) + size)) piece(size);
        std::memset(made->text(), letter, size);
        return made;
    }
    static void destroy(piece* what) {
        what->~piece();
        std::free(what);
    }
    std::size_t count;
    static inline long freed = 0;
};
using in_one_piece = piece<2>;
template <typename Buffer>
bool serialize(Buffer& to, in_one_piece* what) {
    to = {reinterpret_cast<char*>(what), sizeof *what + what->count};
    return false;
}
template <typename Byte>
void serializefreetask(Byte* at, in_one_piece* what) {
    if (reinterpret_cast<char*>(what) != at) ff::cout << "wrong: not where the item is\n";
    ++in_one_piece::freed;
    in_one_piece::destroy(what);
}
template <typename Buffer>
void deserializealloctask(const Buffer& from, in_one_piece*& made) {
    made = new (from.first) in_one_piece(0);
}
template <typename Buffer>
bool deserialize(const Buffer& from, in_one_piece* what) {
    what->count = from.second - sizeof *what;
    return false;
}

/// The same of the first versions, which return nothing.
using oldest = piece<1>;
template <typename Buffer>
void serialize(Buffer& to, oldest* what) {
    to = {reinterpret_cast<char*>(what), sizeof *what + what->count};
}
template <typename Buffer>
void deserialize(const Buffer& from, oldest*& made) {
    made = new (from.first) oldest(from.second - sizeof *made);
}

/// serialize() that copies, and an item that is made by `new` and freed by a function.
struct copying {
    long number = 0;
    static inline long freed = 0;
};
bool serialize(std::pair<char*, std::size_t>& to, copying* what) {
    to = {static_cast<char*>(std::malloc(sizeof(long))), sizeof(long)};
    std::memcpy(to.first, &what->number, sizeof(long));
    return true;
}
void serializefreetask(char*, copying* what) {
    ++copying::freed;
    delete what;
}
bool deserialize(const std::pair<char*, std::size_t>& from, copying* what) {
    std::memcpy(&what->number, from.first, sizeof(long));
    return true;
}
/// Travels by its member, and is freed by a function.
struct freed_by_function : item {
    static inline long freed = 0;
};
void serializefreetask(char*, freed_by_function* what) {
    ++freed_by_function::freed;
    delete what;
}

template <typename T>
int pieces() {
    struct source : ff_node_t<T> {
        T* svc(T*) override {
            for (std::size_t i = 1; i <= 200; ++i)
                this->ff_send_out(T::make(i * 1000, static_cast<char>(i)));
            return this->EOS;
        }
    } first;
    struct sink : ff_node_t<T> {
        T* svc(T* what) override {
            ++count;
            const std::string expected(count * 1000, static_cast<char>(count));
            if (std::string(what->text(), what->count) != expected)
                ff::cout << "wrong: item " << count << " has other bytes\n";
            T::destroy(what);
            return this->GO_ON;
        }
        void svc_end() override { check("items", static_cast<long>(count), 200); }
        std::size_t count = 0;
    } last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    const int result = whole.run_and_wait_end();
    if (DFF_getMyGroup() == "G1")
        check("items freed", T::freed, std::is_same_v<T, oldest> ? 0 : 200);
    return result;
}
template <typename T>
int freed_ones() {
    struct source : ff_node_t<T> {
        T* svc(T*) override {
            for (long i = 0; i != items; ++i) {
                auto* const made = new T;
                made->number = i;
                this->ff_send_out(made);
            }
            return this->EOS;
        }
    } first;
    struct sink : ff_node_t<T> {
        T* svc(T* what) override {
            sum += what->number;
            delete what;
            return this->GO_ON;
        }
        void svc_end() override { check("the sum", sum, sum_to(items)); }
        long sum = 0;
    } last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    const int result = whole.run_and_wait_end();
    if (DFF_getMyGroup() == "G1") check("items freed", T::freed, items);
    return result;
}

}  // namespace

cases ff::testing_groups::cases_of_bytes() {
    return {
        {"not_copied", [] { return manual<by_hand>(); }},
        {"copied", [] { return manual<copied>(); }},
        {"functions", [] { return functions(false); }},
        {"older_functions", [] { return functions(true); }},
        {"containers", containers},
        {"free_functions", [] { return pieces<in_one_piece>(); }},
        {"free_functions_oldest", [] { return pieces<oldest>(); }},
        {"free_functions_copying", [] { return freed_ones<copying>(); }},
        {"free_function_beside_a_member", [] { return freed_ones<freed_by_function>(); }},
    };
}
