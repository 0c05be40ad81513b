// Two groups whose nodes and functions do what they should not. Each group is a child.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ff/dff.hpp>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "conformance/child_process.hpp"
#include "fastflow_free_port.hpp"
#include "fastflow_group_process.hpp"
#include "memory/memory.hpp"
#include "temp_folder.hpp"

namespace {

using amalgam::conformance::channel;
using amalgam::conformance::child_process;

struct source : ff::ff_node_t<std::string> {
    std::string* svc(std::string*) override {
        for (int i = 0; i != 200; ++i)  // It cannot end before G2 reads.
            ff_send_out(new std::string("item"));
        return goes_out ? GO_OUT : EOS;
    }
    bool goes_out = false;
};
struct sink : ff::ff_node_t<std::string> {
    std::string* svc(std::string* what) override {
        delete what;
        return GO_ON;
    }
};

/// A source in G1 and a sink in G2, which `wrong` has changed.
int pipeline(const std::function<void(source&, sink&)>& wrong) {
    source first;
    sink last;
    wrong(first, last);
    ff::ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    return whole.run_and_wait_end();
}

struct ended {
    int code;
    std::string said;  ///< To stderr.
};

class fastflow_faults : public testing::Test {
protected:
    std::string endpoint(const std::string& protocol, const std::string& group) const {
        if (protocol == "tcp") return "tcp://localhost:" + ff::testing_groups::free_port();
        return "shm://" + folder_.path().substr(folder_.path().rfind('/') + 1) + "-" + group;
    }
    std::pair<ended, ended> run(const std::function<int()>& program,
                                const std::string& protocol = "shm",
                                const std::string& messages = "100") {
        const std::string file = folder_.with(
            "groups.json", R"({"groups": [{"name": "G1", "endpoint": ")" + endpoint(protocol, "1") +
                               R"(", "messageOTF": )" + messages +
                               R"(, "internalMessageOTF": 10}, )" +
                               R"({"name": "G2", "endpoint": ")" + endpoint(protocol, "2") +
                               R"(", "internalMessageOTF": 10}]})");
        std::vector<std::unique_ptr<child_process>> children;
        for (const char* group : {"G1", "G2"})
            children.push_back(std::make_unique<child_process>([&, group](channel& test) {
                testing::internal::CaptureStderr();
                const int code = ff::testing_groups::run_group(group, file, program);
                test.say("said: " + testing::internal::GetCapturedStderr());
                return code;
            }));
        std::vector<ended> all;
        for (const auto& each : children) {
            std::string said;
            try {
                said = each->line().hear();
            } catch (const std::runtime_error&) {  // It has died.
            }
            all.push_back({each->join(), std::move(said)});
        }
        return {all[0], all[1]};
    }
    /// Both groups fail, and say so.
    void expect_failed(const std::function<void(source&, sink&)>& wrong,
                       const std::string& sentence) {
        const auto [one, two] = run([&] { return pipeline(wrong); });
        for (const ended& each : {one, two}) {
            EXPECT_EQ(each.code, 1) << each.said;
            EXPECT_NE(each.said.find(sentence), std::string::npos) << each.said;
        }
    }

    amalgam::temp_folder folder_;
};

TEST_F(fastflow_faults, exceptions_of_any_type_where_items_leave_end_both_groups) {
    expect_failed([](source& from,
                     sink&) { from.serializeF = [](void*, ff::message2_t*) -> bool { throw 5; }; },
                  "cannot send an item of node 0");
    expect_failed([](source& from, sink&) { from.freetaskF = [](void*) { throw 5; }; },
                  "cannot send an item of node 0");
}
TEST_F(fastflow_faults, exceptions_of_any_type_where_items_come_end_both_groups) {
    expect_failed(
        [](source&, sink& to) {
            to.deserializeF = [](ff::message2_t*, bool&, ff::ff_node*) -> void* { throw 5; };
        },
        "cannot read an item that group G1 sent to node 1");
    expect_failed(
        [](source&, sink& to) { to.alloctaskF = [](char*, std::size_t) -> void* { throw 5; }; },
        "cannot read an item that group G1 sent to node 1");
}
TEST_F(fastflow_faults, bytes_at_a_null_pointer_are_refused) {
    for (const std::size_t size : {std::size_t{100}, std::size_t{1} << 20})
        expect_failed(
            [size](source& from, sink&) {
                from.serializeF = [size](void*, ff::message2_t* to) {
                    to->size = size;
                    to->cleanup = true;
                    return true;
                };
            },
            std::to_string(size) + " bytes at a null pointer");
}
// As with bytes that are few enough to be copied; the group that waits for them must not hang.
TEST_F(fastflow_faults, a_group_whose_bytes_cannot_be_read_dies_and_the_other_says_so) {
    const auto unreadable = [](source& from, sink&) {
        from.serializeF = [](void*, ff::message2_t* to) {
            constexpr std::size_t size = 1 << 20;
            void* const memory = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            to->data = static_cast<char*>(memory);
            to->size = size;
            to->cleanup = true;
            to->freeCallback = [](void*, char* bytes, std::size_t) { munmap(bytes, size); };
            return true;
        };
    };
    for (const std::string protocol : {"shm", "tcp"}) {
        const auto [one, two] = run([&] { return pipeline(unreadable); }, protocol);
        EXPECT_NE(one.code, 0);
        EXPECT_EQ(one.said, "");  // It could not.
        EXPECT_EQ(two.code, 1);
        EXPECT_NE(two.said.find("is lost before the end of the stream"), std::string::npos)
            << two.said;
    }
}
TEST_F(fastflow_faults, a_size_that_no_item_has_is_refused) {
    expect_failed(
        [](source& from, sink&) {
            from.serializeF = [](void* what, ff::message2_t* to) {
                to->data = static_cast<char*>(what);
                to->size = static_cast<std::size_t>(-1);
                return true;
            };
        },
        "expected the item's bytes and their number");
}
TEST_F(fastflow_faults, no_memory_for_an_item_is_said) {
    expect_failed(
        [](source&, sink& to) {
            to.alloctaskF = [](char*, std::size_t) -> void* { return nullptr; };
        },
        "alloctaskF gave no item");
    expect_failed([](source&, sink& to) { to.alloctaskF = nullptr; }, "alloctaskF gave no item");
}
/// The allocations of a node's thread that fail: from the n-th on; 0: none.
struct lack {
    std::uint64_t n = 0, how_many = 1;
};
/// Neither takes memory itself.
struct frugal_source : ff::ff_node_t<std::string> {
    explicit frugal_source(lack the_lack) : lacks(the_lack) {
        freetaskF = [](void*) {};
    }
    int svc_init() override { return fails.emplace(lacks.n, lacks.how_many), 0; }
    std::string* svc(std::string*) override {
        for (std::string& each : items)
            ff_send_out(&each);
        return EOS;
    }
    const lack lacks;
    std::optional<amalgam::memory::failing> fails;
    std::vector<std::string> items = std::vector<std::string>(200, "item");
};
struct frugal_sink : ff::ff_node_t<std::string> {
    explicit frugal_sink(lack the_lack) : lacks(the_lack) {
        deserializeF = [](ff::message2_t*, bool& copied, ff::ff_node*) -> void* {
            static std::string any;
            copied = true;
            return &any;
        };
    }
    int svc_init() override { return fails.emplace(lacks.n, lacks.how_many), 0; }
    std::string* svc(std::string*) override {
        ++got;
        return GO_ON;
    }
    const lack lacks;
    std::optional<amalgam::memory::failing> fails;
    std::size_t got = 0;
};
int frugal_pipeline(lack of_first, lack of_last) {
    frugal_source first(of_first);
    frugal_sink last(of_last);
    ff::ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    const int result = whole.run_and_wait_end();
    if (result == 0 && ff::DFF_getMyGroup() == "G2" && last.got != first.items.size())
        std::fputs("not all came\n", stderr);
    return result;
}
/// All has come, or both groups say why not.
void expect_all_or_said(const std::pair<ended, ended>& both) {
    const auto& [one, two] = both;
    const bool well = one.code == 0 && two.code == 0;
    EXPECT_EQ(two.said.find("not all came"), std::string::npos);
    for (const ended& each : {one, two}) {
        EXPECT_EQ(each.code, well ? 0 : 1) << each.said;
        EXPECT_EQ(each.said.find("ERROR: ") == std::string::npos, well) << each.said;
    }
}
// Who sends waits for that room.
TEST_F(fastflow_faults, no_memory_to_give_room_back_ends_both_groups) {
    for (std::uint64_t n = 1; n != 12; ++n) {
        SCOPED_TRACE(n);
        expect_all_or_said(run([n] { return frugal_pipeline({}, {n, 1}); }, "tcp", "1"));
    }
}
// Not even for the sentence.
TEST_F(fastflow_faults, no_memory_for_a_while_ends_both_groups_with_a_sentence) {
    for (std::uint64_t n = 1; n != 12; ++n) {
        SCOPED_TRACE(n);
        const auto both = run([n] { return frugal_pipeline({n, 1000}, {}); });
        expect_all_or_said(both);
        if (both.first.code == 0) continue;
        EXPECT_NE(both.first.said.find("cannot send an item of node 0 to group G2 at "),
                  std::string::npos)
            << both.first.said;
    }
}
// Items may have come before, to be read where they are.
TEST_F(fastflow_faults, a_node_may_choose_how_it_reads_items_when_it_starts) {
    struct keeper : sink {
        int svc_init() override {
            deserializeF = [](ff::message2_t* from, bool& copied, ff::ff_node*) -> void* {
                auto* const item = new std::string(from->data, from->size);
                copied = false;
                std::free(from->data);
                return item;
            };
            return 0;
        }
    };
    const auto [one, two] = run([] {
        source first;
        keeper last;
        ff::ff_Pipe<> whole(first, last);
        first.createGroup("G1");
        last.createGroup("G2");
        return whole.run_and_wait_end();
    });
    EXPECT_EQ(one.code, 0) << one.said;
    EXPECT_EQ(two.code, 0) << two.said;
}
TEST_F(fastflow_faults, a_mark_is_no_item) {
    expect_failed(
        [](source&, sink& to) {
            to.deserializeF = [](ff::message2_t*, bool&, ff::ff_node*) { return ff::FF_EOS; };
        },
        "returned a mark, expected the item");
}
TEST_F(fastflow_faults, an_exception_of_a_release_function_is_said) {
    const auto [one, two] = run([] {
        return pipeline([](source& from, sink&) {
            from.serializeF = [](void* what, ff::message2_t* to) {
                const std::string& text = *static_cast<std::string*>(what);
                ff::detail::output_archive archive;
                archive(text);
                to->setBuff(archive.take());
                to->cleanup = true;
                to->freeCallback = [](void*, char* data, std::size_t) {
                    std::free(data);
                    throw 5;
                };
                return true;
            };
        });
    });
    EXPECT_EQ(one.code, 0) << one.said;
    EXPECT_NE(one.said.find("frees an item's bytes threw"), std::string::npos) << one.said;
    EXPECT_EQ(two.code, 0) << two.said;
}
TEST_F(fastflow_faults, a_group_that_ends_without_an_end_of_its_stream_is_named) {
    const auto [one, two] =
        run([] { return pipeline([](source& from, sink&) { from.goes_out = true; }); });
    EXPECT_EQ(two.code, 1) << two.said;
    EXPECT_NE(two.said.find("group G1 at "), std::string::npos) << two.said;
    EXPECT_NE(two.said.find("return EOS, not GO_OUT"), std::string::npos) << two.said;
}
TEST_F(fastflow_faults, it_is_named_whichever_of_a_node_s_inputs_ends_first) {
    struct left : ff::ff_monode_t<std::string> {
        explicit left(bool out) : goes_out(out) {}
        std::string* svc(std::string*) override { return goes_out ? GO_OUT : EOS; }
        const bool goes_out;
    };
    struct right : ff::ff_minode_t<std::string> {
        std::string* svc(std::string* what) override {
            delete what;
            return GO_ON;
        }
    };
    const auto [one, two] = run([] {
        left there(true), here(false);
        right reads;
        ff::ff_a2a all;
        all.add_firstset(std::vector<ff::ff_node*>{&there, &here});
        all.add_secondset(std::vector<ff::ff_node*>{&reads});
        ff::createGroup("G1") << &there;
        ff::createGroup("G2") << &here << &reads;
        return all.run_and_wait_end();
    });
    EXPECT_EQ(two.code, 1) << two.said;
    EXPECT_NE(two.said.find("group G1 at "), std::string::npos) << two.said;
}
// A worker that waited for room in its master's queue would wait for a master that waits for it.
TEST_F(fastflow_faults, a_master_may_send_more_than_there_is_room_for_before_it_reads) {
    struct master : ff::ff_monode_t<std::string> {
        std::string* svc(std::string* what) override {
            if (what == nullptr) {
                for (int i = 0; i != 1000; ++i)
                    ff_send_out(new std::string("item"));
                return GO_ON;
            }
            delete what;
            return ++back == 1000 ? EOS : GO_ON;
        }
        int back = 0;
    };
    struct worker : ff::ff_node_t<std::string> {
        std::string* svc(std::string* what) override { return what; }
    };
    const auto [one, two] = run([] {
        master first;
        worker left, right;
        ff::ff_farm farm(std::vector<ff::ff_node*>{&left, &right}, &first);
        farm.remove_collector();
        farm.wrap_around();
        ff::createGroup("G1") << &first;
        ff::createGroup("G2") << &left << &right;
        return farm.run_and_wait_end();
    });
    EXPECT_EQ(one.code, 0) << one.said;
    EXPECT_EQ(two.code, 0) << two.said;
}

}  // namespace
