-- Each lease blocks its whole group, so that nothing depends on this any more; see core/queue/delivery.py, rule 2.

alter table inturn_hold drop column extended;
alter table inturn_lease drop column extended;
