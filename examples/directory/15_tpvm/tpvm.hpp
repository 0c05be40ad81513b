#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/directory.hpp>
#include <amalgam/rpc.hpp>

/// TPVM, "Distributed Concurrent Computing with Lightweight Processes", as built in section 5.1 of
/// the RoCL paper: tasks are processes and threads are ULTs, both are resources, and a TID is a
/// resource's id. There are no daemons: hosts are resources as well, which only tell how to start
/// something there.
///
///     {type: task, host}                     a process of the application
///     {type: systhread, of: TID}             its pod controller, which starts threads on demand
///     {type: threadef, name, systhread}      a thread that it has exported
///     {type: thread, name}                   a running thread
///     {type: tmp, pid, host, ptid}           tells a new process who started it
///     {type: host, name, how}                a host
namespace tpvm {

using tid = am::resource_id;

/// A message received by a thread or a task.
struct message {
    tid from = tid::none;
    int tag = 0;
    am::message_buffer content;

    std::string_view text() const { return content.text(); }
};

/// Something with a TID: a task or a thread.
///
/// Threads: any.
/// Failure: throws am::error.
class endpoint {
public:
    tid id() const { return self_.id(); }
    /// The one that started it; none if that was outside of TPVM.
    tid parent() const { return parent_; }

    void send(tid to, int tag, am::const_bytes content) const { self_.send(to, tag, content); }
    void send(tid to, int tag, std::string_view text) const { self_.send(to, tag, text); }
    /// The next message; by default from anybody, with any tag.
    message receive(tid from = tid::none, std::optional<int> tag = {}) const;

protected:
    endpoint() = default;
    am::resource self_;
    tid parent_ = tid::none;
};

/// One running thread.
class thread : public endpoint {
private:
    friend class task;
    thread() = default;
};

/// This process as a task, enrolled by the constructor. One per process.
class task : public endpoint {
public:
    explicit task(am::context& here);
    task(const task&) = delete;
    task& operator=(const task&) = delete;
    ~task();

    am::context& here() { return here_; }

    /// Adds a host, and the words that run a command there when put in front of it:
    /// {"ssh", "node7"}. Known to all while this task lives.
    void add_host(const std::string& name, const std::vector<std::string>& how);
    std::vector<std::string> hosts();

    /// Starts a program on a host ("": this one), waits until it has enrolled, and returns its TID.
    /// The program is this one, or another that first calls launch_if_asked().
    tid spawn_task(const std::string& host, const std::vector<std::string>& command);

    /// Lets others start this thread by its name. tpvm_export()
    void export_thread(const std::string& name, std::function<void(thread&)> body);
    /// Starts a thread of that name in one of the tasks that export it, in turn, and returns its
    /// TID. tpvm_spawn()
    tid spawn_thread(const std::string& name);

private:
    void enroll();
    void control_pod();

    am::context& here_;
    am::resource pod_;
    am::ult controller_;
    std::mutex lock_;
    std::list<am::resource> registered_;
    std::list<std::pair<std::string, std::function<void(thread&)>>> exported_;
    std::list<am::ult> threads_;
    std::vector<int> started_;  // Processes.
    std::size_t turn_ = 0;
};

/// This process's executable, for starting more of the same.
std::string own_program();

/// To be called first by any program started as a task. If started as a launcher ("--tpvm-launch
/// PTID HOST COMMAND…"), it registers what the new task asks for, starts the command, waits for its
/// end, and does not return. Precondition: the process has one thread.
void launch_if_asked(int argc, char** argv);

}  // namespace tpvm
