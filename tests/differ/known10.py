"""Where Warren differs from RabbitMQ 4.3 over AMQP 1.0 on purpose, with the words of the docs."""

from __future__ import annotations

from differ.transcripts import Known

LINKS = "^links[.]"
ERROR = r"closed=true, error=error\("

KNOWN10: tuple[Known, ...] = (
    Known(
        "**Errors** have an `info` with `status`",
        LINKS,
        warren=((r", info=\{'status': \d+:long\}", ""),),
    ),
    Known(
        "where RabbitMQ has none (a deleted queue)",
        LINKS,
        warren=((r"(resource-deleted), description=\"queue [^\"]* was deleted\"", r"\1"),),
    ),
    Known(
        "Descriptions say more (what is expected, the limit)",
        "^links.(?:attaches|a_queue_that)",
        rabbitmq=(
            ("not_permitted, ", "not_permitted,"),
            (r"\{utf8,<<>>\}", '{utf8,<<"">>}'),
            (r"\{bad_address,undefined\}", "source_required"),
        ),
        warren=(
            (r"((?:>>\}?\}|source_required)): [^']*'", r"\1'"),
            (r"(locked queue '\w+' in vhost '[^']*')[^\"]*\"", r'\1"'),
        ),
    ),
    Known(
        "some have other words",
        "^links.messages_refused",
        rabbitmq=(
            (r"(failed to parse message): [^']*'", r"\1'"),
            ("forbidden to publish to", "cannot publish to"),
        ),
        warren=((r"(failed to parse message): [^']*'", r"\1'"),),
    ),
    Known(
        "**A right that is missing** when a client attaches or publishes ends the session",
        "^links.rights_that_miss",
        rabbitmq=((r"(?m)^end error=error\((.*)\)$", r"refused \1"),),
        warren=(
            (rf"attach .*\ndetach \w+ {ERROR}(.*)\)$", r"refused \1"),
            (r"^disposition .*rejected\(error=error\((.*)\)\)$", r"refused \1"),
        ),
    ),
    Known(
        "**`available`** in flows",
        LINKS,
        rabbitmq=((r"available=\d+:uint, ", ""),),
    ),
    Known(
        "**`max-message-size`** in the answer to a consumer's attach",
        "^links.consumers_attach",
        rabbitmq=(("(role=false.*), max-message-size=1000:ulong", r"\1"),),
    ),
    Known(
        "| yes, `default-outcome` released, no capabilities, no target | same, without",
        LINKS,
        rabbitmq=((r", default-outcome=released\(\)", ""),),
        warren=(
            (r"(role=false.*source=source.*), target=target\([^)]*\)", r"\1"),
            (r"(role=false.*), capabilities=:queue", r"\1"),
        ),
    ),
    Known(
        "| messages without an answer on a link | 170 | 2,000 |",
        LINKS,
        rabbitmq=(("link-credit=170:uint", "link-credit=2000:uint"),),
        warren=((r"flow \w+ delivery-count=1:uint, link-credit=1999:uint\n", ""),),
    ),
    Known(
        "| a message above `max-message-size` | the session ends | the link ends",
        "^links.messages_refused 2[0-9]",
        rabbitmq=((r"^end (.*message-size-exceeded), description='.*'", r"\1"),),
        warren=((r"^detach publisher (?:closed=true, )(.*message-size-exceeded).*\)$", r"\1)"),),
    ),
    Known(
        "without an address of its own (null target) the message is rejected",
        "^links.messages_refused 18",
        rabbitmq=((rf"^detach publisher {ERROR}", "refused "),),
        warren=((r"^disposition .*rejected\(error=error\((.*)\)$", r"refused \1"),),
    ),
    Known(
        "One more ends the connection, `amqp:resource-limit-exceeded`",
        "^links.sessions_and_links_at_most",
        rabbitmq=(("description='.*'", "description"),),
        warren=(("description='.*'", "description"),),
    ),
    Known(
        "of a message that was delivered before | quorum | any queue |",
        "^links.outcomes_at_a_classic_queue",
        warren=((r":x-(?:acquired|delivery)-count: \d+:long, ", ""),),
    ),
    Known(
        "the next queue counts on from there",
        "^links.annotations_that_are",
        rabbitmq=(("(?m)^(transfer letters .*, first-acquirer=)false", r"\1true"),),
    ),
    Known(
        "product, version, platform, information, node and cluster name",
        "^links.opens",
        rabbitmq=(
            ("max-frame-size=131072", "max-frame-size=1048576"),
            (": '[^']*'", ": TEXT"),
        ),
        warren=(
            (", :warren_relays", ""),
            (", :warren-api: '[^']*'", ""),
            (": '[^']*'", ": TEXT"),
        ),
    ),
    # ------------------------------------------------------------ management
    Known(
        "The source of replies has no distribution mode",
        "^management.a_name_for_replies",
        rabbitmq=((", distribution-mode=:move", ""),),
        warren=((r", capabilities=array\[[^]]*\]", ""), (r", target=target\([^)]*\)", "")),
    ),
    Known(
        "A missing permission is answered by 403, where RabbitMQ ends the session",
        "^management.requests_without_rights",
        rabbitmq=(
            (
                r"^end error=error\(condition=:amqp:unauthorized-access, description=(.*)\)",
                r"403 \1",
            ),
        ),
    ),
    Known(
        "any one of the three rights is enough to look at a queue over AMQP 1.0",
        "^management.requests_without_rights 3[.]",
        rabbitmq=(("configure access", "read access"),),
    ),
    Known(
        "Texts for bad keys and reserved names are Warren's own",
        "^management[.]",
        rabbitmq=(
            (r"^40[03] \"(?:exchange|queue) '(.*)' in .* starts with reserved prefix.*", r"403 \1"),
            ("^400 [\"']bad (?:queue property|binding path segment).*", "400"),
            ("^400 'declare queue with empty name not allowed'", "400"),
            ("^400 'failed to normalize URI .*", "400"),
            ("invalid exchange type", "unknown exchange type"),
        ),
        warren=(
            (r"^403 \"(?:exchange|queue) name '(.*)' contains reserved prefix.*", r"403 \1"),
            (r"^403 \"deletion of system exchange '(.*)' in .*", r"403 \1"),
            ("^400 [\"'](?:durable='yes'|unknown key|binding 'other'|the queue's name).*", "400"),
            ("^404 \"queue '%zz'.*", "400"),
        ),
    ),
    Known(
        "**Other texts.** RabbitMQ names the types of inequivalent arguments only where one side",
        "^management.queues_requested",
        rabbitmq=((r"of type 'long' but", "of type 'signedint' but"),),
        warren=((r"the value ('[^']*') of type 'longstr'", r"\1"),),
    ),
    Known(
        "**Arguments of one kind of queue.** `x-max-priority` of quorum queues",
        "^management.queues_requested 1[0-9][.]",
        rabbitmq=(("^409 .*'x-max-priority'.*", "refused or declared"),),
        warren=(("^201 .*'x-max-priority'.*", "refused or declared"),),
    ),
    Known(
        "**Arguments.** A queue's property that its type does not have is 409",
        "^management.queues_requested",
        rabbitmq=(("^400 (.*invalid property)", r"409 \1"),),
    ),
)
