-- Views of the results of pipelines, for joins with other tables. A state is stored only as MessagePack: so a worker of
-- an older version, which does not write JSON, leaves no outdated JSON.

-- Return the JSON form of MessagePack, as inturn/json_form.py does. In a text NUL, which jsonb lacks, becomes U+FFFD. It
-- is one function, so that it does not depend on the search_path of the caller.
create function inturn_json(packed bytea) returns jsonb language plpgsql immutable strict parallel safe as $$
declare
    data constant bytea := packed || ''::bytea; -- decompressed once
    pos int := 1;
    head int;
    width int;          -- number of bytes of a number, or of a length
    raw bytea;
    number bigint;      -- without a sign, unless it has 8 bytes
    size int;           -- the length of a text or of bytes; the number of entries of a map or an array
    bits int;           -- of the fraction of a float
    exponent int;
    real float8;
    nanos bigint;
    item text;
    pieces text[] := '{}';
    depth int := 0;     -- number of arrays and maps that are open, and of each:
    is_map boolean[];
    wanted int[];       -- number of its values, with its keys
    done int[];         -- how many of them are read
    first int[];        -- its first piece
begin
    loop
        if depth > 0 and done[depth] > 0 then
            pieces := array_append(pieces, case when is_map[depth] and done[depth] % 2 = 1 then ':' else ',' end);
        end if;
        head := get_byte(data, pos - 1);
        pos := pos + 1;
        number := null;
        if head between 196 and 223 then
            width := case
                when head in (196, 199, 204, 208, 217) then 1
                when head in (197, 200, 205, 209, 218, 220, 222) then 2
                when head in (198, 201, 202, 206, 210, 219, 221, 223) then 4
                when head in (203, 207, 211) then 8
                else 0 end;
            raw := substring(data from pos for width);
            number := ('x' || lpad(encode(raw, 'hex'), 16, '0'))::bit(64)::bigint;
            pos := pos + width;
        end if;
        size := case
            when head < 128 or head between 192 and 195 or head between 202 and 211 or head > 223 then null
            when head < 160 then head & 15
            when head < 192 then head & 31
            when head between 212 and 216 then 1 << (head - 212)
            else number end;
        if head between 128 and 159 or head between 220 and 223 then
            depth := depth + 1;
            is_map[depth] := head < 144 or head between 222 and 223;
            wanted[depth] := case when is_map[depth] then 2 * size else size end;
            done[depth] := 0;
            first[depth] := cardinality(pieces) + 1;
            pieces := array_append(pieces, case when is_map[depth] then '{' else '[' end);
        else
            if size is not null then
                if head between 199 and 201 or head between 212 and 216 then
                    pos := pos + 1; -- the type of an extension
                end if;
                raw := substring(data from pos for size);
                pos := pos + size;
            end if;
            if head < 128 then
                item := head;
            elsif head > 223 then
                item := head - 256;
            elsif head < 192 or head > 216 then
                while position('\x00'::bytea in raw) > 0 loop
                    raw := overlay(raw placing '\xefbfbd'::bytea from position('\x00'::bytea in raw) for 1);
                end loop;
                item := to_json(convert_from(raw, 'UTF8'));
            elsif head < 196 then
                item := case head when 192 then 'null' when 194 then 'false' else 'true' end;
            elsif head < 199 then
                item := to_json(translate(encode(raw, 'base64'), E'\n', ''));
            elsif head in (202, 203) then
                bits := case width when 4 then 23 else 52 end;
                exponent := (number >> bits) & (case width when 4 then 255 else 2047 end);
                real := (number & ((1::bigint << bits) - 1)) / power(2::float8, bits);
                real := case exponent
                    when case width when 4 then 255 else 2047 end then null -- NaN and infinity
                    when 0 then real * power(2::float8, case width when 4 then -126 else -1022 end)
                    else (1 + real) * power(2::float8, exponent - case width when 4 then 127 else 1023 end) end;
                item := coalesce(to_json(case when get_byte(raw, 0) > 127 then -real else real end)::text, 'null');
            elsif head = 207 and number < 0 then
                item := number + 18446744073709551616;
            elsif head between 208 and 210 and get_byte(raw, 0) > 127 then
                item := number - (1::bigint << (8 * width));
            elsif head between 204 and 211 then
                item := number;
            else -- an instant, of 4, 8 or 12 bytes
                nanos := case size when 12 then ('x' || encode(substring(raw for 4), 'hex'))::bit(32)::bigint else 0 end;
                number := ('x' || lpad(encode(substring(raw from greatest(size - 7, 1)), 'hex'), 16, '0'))::bit(64)::bigint;
                if size = 8 then
                    nanos := (number >> 34) & ((1 << 30) - 1);
                    number := number & ((1::bigint << 34) - 1);
                end if;
                item := to_char(timestamp 'epoch' + number * interval '1 second', 'YYYY-MM-DD"T"HH24:MI:SS');
                item := to_json(item || case when nanos > 0 then '.' || lpad((nanos / 1000)::text, 6, '0') else '' end || 'Z');
            end if;
            if depth > 0 then
                if is_map[depth] and done[depth] % 2 = 0 and left(item, 1) <> '"' then
                    item := to_json(item);
                end if;
                done[depth] := done[depth] + 1;
            end if;
            pieces := array_append(pieces, item);
        end if;
        while depth > 0 and done[depth] = wanted[depth] loop
            pieces := array_append(pieces, case when is_map[depth] then '}' else ']' end);
            depth := depth - 1;
            if depth > 0 then
                if is_map[depth] and done[depth] % 2 = 0 then -- it is a key
                    item := to_json(array_to_string(pieces[first[depth + 1]:], ''));
                    pieces := array_append(pieces[:first[depth + 1] - 1], item);
                end if;
                done[depth] := done[depth] + 1;
            end if;
        end loop;
        exit when depth = 0;
    end loop;
    return array_to_string(pieces, '')::jsonb;
end $$;

create view inturn_states as
select p.name as pipeline, g.grp as "group", g.status, g.held, inturn_json(g.state) as state
from inturn_group g join inturn_pipeline p on p.number = g.pipeline;

-- As json, which unlike jsonb can contain NUL.
create view inturn_outputs as
select p.name as pipeline, o.number, o.grp as "group", o.epoch, o.revision, o.id, o.at as index, o.effect_id,
    o.output::json as output
from inturn_output o join inturn_pipeline p on p.number = o.pipeline;

create view inturn_rejections as
select p.name as pipeline, r.number, r.grp as "group", r.reason, r.detail, r.message, r.at_ms
from inturn_rejected r join inturn_pipeline p on p.number = r.pipeline;
